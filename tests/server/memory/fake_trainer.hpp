#pragma once
#include <algorithm>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "server/training/trainer.hpp"

namespace sluice::server {

/// A trainer that obeys when the test lets it.
class FakeTrainer : public training::Trainer {
 public:
  training::TrainerMemory memory() const override {
    const std::lock_guard lock(mutex_);
    return memory_;
  }
  bool may_shrink(shm::MemoryOrder& by) const override {
    by = shrinks_by_;
    return true;
  }
  void set_grant(std::uint64_t bytes) override {
    const std::lock_guard lock(mutex_);
    memory_.grant = bytes;
    if (grows_to_ != 0) memory_.held = std::exchange(grows_to_, 0);
  }
  std::uint64_t order(shm::MemoryOrder kind) override {
    const std::lock_guard lock(mutex_);
    orders_.push_back(kind);
    if (obeys_at_once_) obey();
    return ++epoch_;
  }
  bool wait_done(std::uint64_t epoch, std::uint64_t /*until_ns*/) override {
    const std::lock_guard lock(mutex_);
    return epoch <= done_ || !memory_.attached;
  }
  shm::ObeyParts parts() const override {
    const std::lock_guard lock(mutex_);
    return parts_;
  }
  void let_run() override {
    const std::lock_guard lock(mutex_);
    ++let_run_;
  }
  void resume() override {
    const std::lock_guard lock(mutex_);
    ++resumes_;
  }
  void end(const char* why) override {
    const std::lock_guard lock(mutex_);
    memory_ = {};
    ended_ = why;
  }

  void set(const training::TrainerMemory& memory) {
    const std::lock_guard lock(mutex_);
    memory_ = memory;
  }
  void obeyed_in(const shm::ObeyParts& parts) {
    const std::lock_guard lock(mutex_);
    parts_ = parts;
  }
  [[nodiscard]] int let_run_count() const {
    const std::lock_guard lock(mutex_);
    return let_run_;
  }
  void shrinks_by(shm::MemoryOrder order) { shrinks_by_ = order; }
  void obey_at_once() { obeys_at_once_ = true; }
  /// Allocates up to its old grant just before the next one.
  void grow_before_next_grant(std::uint64_t held) { grows_to_ = held; }
  /// It says that it has obeyed, and holds at least so much all the same.
  void keep(std::uint64_t bytes) { keeps_ = bytes; }
  [[nodiscard]] std::vector<shm::MemoryOrder> orders() const {
    const std::lock_guard lock(mutex_);
    return orders_;
  }
  [[nodiscard]] std::string ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

 private:
  void obey() {
    memory_.held = std::min(memory_.held, std::max(memory_.grant, keeps_));
    done_ = epoch_ + 1;
  }

  mutable std::mutex mutex_;
  training::TrainerMemory memory_;
  std::vector<shm::MemoryOrder> orders_;
  std::uint64_t epoch_ = 0, done_ = 0;
  shm::ObeyParts parts_;
  int resumes_ = 0;
  int let_run_ = 0;
  std::uint64_t grows_to_ = 0;
  bool obeys_at_once_ = false;
  shm::MemoryOrder shrinks_by_ = shm::MemoryOrder::kDrop;
  std::uint64_t keeps_ = 0;
  std::string ended_;
};

}  // namespace sluice::server
