#pragma once
#include <mutex>
#include <string>
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
  bool may_shrink(training::Order& by) const override {
    by = training::Order::kDrop;
    return true;
  }
  void set_grant(std::uint64_t bytes) override {
    const std::lock_guard lock(mutex_);
    memory_.grant = bytes;
  }
  std::uint64_t order(training::Order kind) override {
    const std::lock_guard lock(mutex_);
    orders_.push_back(kind);
    if (obeys_at_once_) obey();
    return ++epoch_;
  }
  bool wait_done(std::uint64_t epoch, std::uint64_t /*until_ns*/) override {
    const std::lock_guard lock(mutex_);
    return epoch <= done_ || !memory_.attached;
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
  void obey_at_once() { obeys_at_once_ = true; }
  [[nodiscard]] std::vector<training::Order> orders() const {
    const std::lock_guard lock(mutex_);
    return orders_;
  }
  [[nodiscard]] std::string ended() const {
    const std::lock_guard lock(mutex_);
    return ended_;
  }

 private:
  void obey() {
    memory_.held = std::min(memory_.held, memory_.grant);
    done_ = epoch_ + 1;
  }

  mutable std::mutex mutex_;
  training::TrainerMemory memory_;
  std::vector<training::Order> orders_;
  std::uint64_t epoch_ = 0, done_ = 0;
  int resumes_ = 0;
  bool obeys_at_once_ = false;
  std::string ended_;
};

}  // namespace sluice::server
