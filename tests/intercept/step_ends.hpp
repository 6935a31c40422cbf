#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "intercept/driver/process.hpp"
#include "intercept/jobs/steps.hpp"
#include "shm/policy.hpp"
#include "tests/intercept/own_client.hpp"

namespace sluice::intercept::test {

constexpr std::uint64_t kMs = 1'000'000;

/// A program that gives steps to the GPU and waits for them, in virtual time.
class StepEnds : public testing::Test {
 protected:
  struct Flight {
    CUevent event;
    std::uint64_t done_ns;
  };

  StepEnds() {
    steps_->give(0.05, false);
    add_below();
    begin_job();
  }
  void add_below() {
    shm::Slot& below = client_.board().slots[1];
    below.info.store(shm::SlotInfo{shm::SlotState::kLive, 0, 0, 1}.pack());
    below.policy.store(shm::kDefaultPolicy.pack());
    client_.board().used.store(3);
  }
  void begin_job() {
    steps_->job_begins(now_, launches_);
    g_process.last_graph.store(nullptr);
  }
  /// The program gives a step of `ms` to the GPU, and records an event behind it.
  void give(std::uint64_t kind, std::uint64_t launches, double ms) {
    client_.board().slots[1].busy_ns.store(now_);
    steps_->given(kind, now_);
    launches_ += launches;
    gpu_ns_ = std::max(gpu_ns_, now_) + static_cast<std::uint64_t>(ms * kMs);
    const auto event = reinterpret_cast<CUevent>((events_++ % 16 + 1) * 64);
    g_process.event_marks.note(event);
    flights_.push_back({event, gpu_ns_});
  }
  /// It waits for the oldest step that it has not waited for.
  Steps::End wait() {
    const Flight flight = flights_.front();
    flights_.pop_front();
    return wait_for(flight.event, flight.done_ns);
  }
  Steps::End wait_for(CUevent event, std::uint64_t done_ns) {
    const Waits::Wait wait{now_, 0, g_process.event_marks.take(event)};
    now_ = std::max(now_ + 2'000, done_ns);
    if (closes_ns_ != 0 && closes_ns_ <= now_) steps_->window_closed(std::exchange(closes_ns_, 0));
    const Steps::End end = steps_->wait_returned(wait, now_, launches_);
    const bool open = closes_ns_ != 0;
    if (end.close) {
      EXPECT_TRUE(open);
      steps_->window_closed(now_);
      closes_ns_ = 0;
    } else if (end.window_ns != 0) {
      closes_ns_ = now_ + end.window_ns;
      if (open) return end;
      ++windows_;
      steps_->window_opened(now_);
    }
    return end;
  }
  /// `steps` decode steps, two in flight.
  void decode(int steps, double ms = 20) {
    for (int i = 0; i < steps; ++i) {
      give(7, 30, ms);
      if (flights_.size() > 1) wait();
    }
  }
  [[nodiscard]] shm::StepState state() {
    return static_cast<shm::StepState>(client_->slot().steps.state.load());
  }

  OwnClient client_{5};
  std::unique_ptr<Steps> steps_ = std::make_unique<Steps>(*client_);
  std::deque<Flight> flights_;
  std::uint64_t now_ = 1000 * kMs;
  std::uint64_t gpu_ns_ = 0;
  std::uint64_t launches_ = 0;
  std::uint64_t closes_ns_ = 0;
  std::uintptr_t events_ = 0;
  int windows_ = 0;
};

}  // namespace sluice::intercept::test
