#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "server/memory/residency.hpp"
#include "tests/server/memory/fake_trainer.hpp"
#include "tests/server/memory/fake_weights.hpp"

namespace sluice::server::memory {

inline constexpr std::uint64_t kMiB = 1ULL << 20;
inline constexpr auto kPatience = std::chrono::seconds(10);

class ResidencyTest : public testing::Test {
 protected:
  ResidencyTest() {
    options_.broker.pool_bytes = 100 * kMiB;
    options_.broker.max_idle_ns = 0;
    options_.broker.page_bytes = options_.broker.slack_bytes = kMiB;
    device_.free = 100 * kMiB;
  }
  Residency& start(training::Trainer* trainer = nullptr) {
    ResidencyEvents events;
    events.settled = [this](std::uint32_t model, const std::string& error) {
      const std::lock_guard lock(mutex_);
      settled_.emplace_back(model, error);
      changed_.notify_all();
    };
    events.context_lost = [this](const std::string& why) {
      if (!may_be_lost_) ADD_FAILURE() << why;
      const std::lock_guard lock(mutex_);
      lost_.push_back(why);
      changed_.notify_all();
    };
    events.handover = [this](const training::Handover& handover) {
      const std::lock_guard lock(mutex_);
      handovers_.push_back(handover);
      changed_.notify_all();
    };
    events.taken = [](std::uint64_t) {};
    events.loaded = [this](std::uint64_t) { ++loaded_; };
    events.evicted = [this] { ++evicted_; };
    events.log = [this](const std::string& line) {
      const std::lock_guard lock(mutex_);
      lines_.push_back(line);
    };
    events.held = [this] { return held_.load(); };
    residency_ = std::make_unique<Residency>(options_, trainer, std::move(events));
    return *residency_;
  }
  /// A model, loaded.
  FakeWeights& add(std::uint32_t model, std::uint64_t mib, std::size_t blocks = 1,
                   std::function<void()> on_evict = {}) {
    weights_.push_back(std::make_unique<FakeWeights>(device_, mib * kMiB, blocks));
    weights_.back()->on_evict = std::move(on_evict);  // it may leave as soon as it is added
    residency_->add(model, {weights_.back().get()});
    return *weights_.back();
  }
  /// All models leave, as for a model that needs the whole pool.
  void evict_idle() {
    Residency::Room room(*residency_);
    EXPECT_TRUE(room.make(options_.broker.pool_bytes));
  }
  /// A trainer that obeys, has 80 MiB, and needs 11 at least.
  static void attach(FakeTrainer& trainer) {
    trainer.set(
        {{.held = 80 * kMiB, .grant = 80 * kMiB, .base = 10 * kMiB, .slope = kMiB, .obeys = true},
         true});
  }
  /// The next model that settles, and why it does not run.
  std::pair<std::uint32_t, std::string> next() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [this] { return !settled_.empty(); })) {
      ADD_FAILURE() << "nothing settled";
      return {~0U, ""};
    }
    const auto first = settled_.front();
    settled_.erase(settled_.begin());
    return first;
  }
  /// Waits until the context is lost. Returns each reason that was reported.
  std::vector<std::string> lost() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kPatience, [this] { return !lost_.empty(); });
    return lost_;
  }
  training::Handover next_handover() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [this] { return !handovers_.empty(); }));
    return handovers_.empty() ? training::Handover{} : handovers_.front();
  }
  template <class Condition>
  static bool eventually(const Condition& condition) {
    const std::uint64_t end = base::monotonic_ns() + 10'000'000'000;
    while (!condition() && base::monotonic_ns() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
  }

  ResidencyOptions options_;
  FakeDevice device_;
  std::atomic<std::uint64_t> held_{0};
  std::atomic<int> evicted_{0};
  std::atomic<int> loaded_{0};
  std::vector<std::unique_ptr<FakeWeights>> weights_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<std::uint32_t, std::string>> settled_;
  std::atomic<bool> may_be_lost_{false};
  std::vector<std::string> lost_;
  std::vector<training::Handover> handovers_;
  std::vector<std::string> lines_;
  FakeTrainer trainer_;
  std::unique_ptr<Residency> residency_;  // last: its thread uses the others
};

}  // namespace sluice::server::memory
