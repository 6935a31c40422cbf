// Whether the GPU has come to a client's closed gate, in virtual time.
#include "intercept/slot/arrivals.hpp"

#include <gtest/gtest.h>

namespace sluice::intercept::test {
namespace {

constexpr std::uint64_t kUs = 1'000;

class ArrivalsAtTheGate : public ::testing::Test {
 protected:
  /// Puts a wait into the stream, and work of so much GPU time behind it.
  void launch(int index, std::uint64_t us) {
    arrivals_.add_work(index, us * kUs, true, true);
    numbers_[static_cast<std::size_t>(index)] = arrivals_.next(index);
  }
  void gpu_comes_to(int index, std::uint64_t number) {
    words_[static_cast<std::size_t>(index)].store(number);
  }
  void gpu_comes_to_last(int index) {
    gpu_comes_to(index, numbers_[static_cast<std::size_t>(index)]);
  }
  bool complete_after(std::uint64_t us) {
    now_ += us * kUs;
    return arrivals_.complete(now_);
  }
  void close_gate() { arrivals_.gate_closed(now_, false); }
  /// So many turns ended without a sign of the GPU, so that only durations count.
  void forget_what_was_seen() {
    for (int i = 0; i < 80; ++i) {
      close_gate();
      now_ += 1'000'000'000;
      static_cast<void>(arrivals_.complete(now_));
      arrivals_.turn_ended(now_);
    }
  }

  std::array<shm::TurnLine::Word, Arrivals::kStreams> words_{};
  std::array<std::uint64_t, Arrivals::kStreams> numbers_{};
  Arrivals arrivals_{words_, 1};
  std::uint64_t now_ = 1'000'000'000;
};

TEST_F(ArrivalsAtTheGate, WithoutWorkItIsComplete) {
  EXPECT_TRUE(complete_after(0));
  EXPECT_EQ(arrivals_.take_index(), 0);
  close_gate();
  EXPECT_TRUE(complete_after(0));
}

// Prevents: a kernel whose length nobody knows is thought to be done while it runs, or to run when
// it is done.
TEST_F(ArrivalsAtTheGate, TheMarkBehindAKernelSaysThatItIsDone) {
  const int stream = arrivals_.take_index();
  const auto launch_marked = [&] {
    arrivals_.add_work(stream, 2000 * kUs, false, true);
    static_cast<void>(arrivals_.next(stream));
    const std::uint64_t mark = arrivals_.next(stream);
    arrivals_.end_is_marked(stream);
    return mark;
  };
  const std::uint64_t first = launch_marked();
  gpu_comes_to(stream, first - 1);
  close_gate();
  EXPECT_FALSE(complete_after(30));
  EXPECT_FALSE(complete_after(60'000)) << "it is longer than was guessed";
  gpu_comes_to(stream, first);
  EXPECT_TRUE(complete_after(30));
  const std::uint64_t second = launch_marked();
  gpu_comes_to(stream, second);
  close_gate();
  EXPECT_TRUE(complete_after(0)) << "it was done before";
}

// Prevents: the next client begins while a kernel of this one runs.
TEST_F(ArrivalsAtTheGate, AKernelThatRunsIsWaitedForToTheNextWait) {
  const int stream = arrivals_.take_index();
  for (int i = 0; i < 4; ++i) launch(stream, 5000);
  gpu_comes_to(stream, 2);
  close_gate();
  EXPECT_FALSE(complete_after(30));
  EXPECT_FALSE(complete_after(5000)) << "its duration was thought to be that";
  gpu_comes_to(stream, 3);
  EXPECT_TRUE(complete_after(30));
}

// Prevents: the next client waits for 20 ms for a stream that waits for one that is at the gate.
TEST_F(ArrivalsAtTheGate, WhatWaitsForAStreamAtTheGateIsNotWaitedForWithoutEnd) {
  forget_what_was_seen();
  const int one = arrivals_.take_index();
  const int other = arrivals_.take_index();
  for (int i = 0; i < 4; ++i) launch(one, 1000);
  for (int i = 0; i < 4; ++i) launch(other, 1000);
  gpu_comes_to(one, 1);
  close_gate();
  gpu_comes_to(one, 2);
  EXPECT_FALSE(complete_after(1000));
  EXPECT_FALSE(complete_after(2400)) << "twice as long as its longest work takes";
  EXPECT_TRUE(complete_after(200));
}

// Prevents: a kernel whose duration was learned wrongly runs on next to the next client.
TEST_F(ArrivalsAtTheGate, WhatTookLongIsWaitedForAgain) {
  const int stream = arrivals_.take_index();
  const auto ends_after = [&](std::uint64_t us) {
    launch(stream, 100);
    launch(stream, 100);
    gpu_comes_to(stream, numbers_[0] - 1);
    close_gate();
    EXPECT_FALSE(complete_after(us - 10)) << us;
    gpu_comes_to_last(stream);
    EXPECT_TRUE(complete_after(10));
    arrivals_.turn_ended(now_);
  };
  for (int i = 0; i < 40; ++i) ends_after(15'000);
  for (int i = 0; i < 4; ++i) ends_after(3000);
  ends_after(15'000);
  for (int i = 0; i < 40; ++i) ends_after(1000);
  launch(stream, 100);
  launch(stream, 100);
  gpu_comes_to(stream, numbers_[0] - 1);
  close_gate();
  EXPECT_TRUE(complete_after(2800)) << "it is long ago";
}

// Prevents: a kernel whose duration varies runs on next to the next client.
TEST_F(ArrivalsAtTheGate, WorkOfUnknownDurationMayTakeLong) {
  const int stream = arrivals_.take_index();
  arrivals_.add_work(stream, 2000 * kUs, false, true);
  gpu_comes_to(stream, arrivals_.next(stream));
  arrivals_.add_work(stream, 2000 * kUs, false, true);
  static_cast<void>(arrivals_.next(stream));
  close_gate();
  EXPECT_FALSE(complete_after(50'000));
}

// Prevents: the same after a turn that ended while a job above held the gate.
TEST_F(ArrivalsAtTheGate, WhereOthersHoldTheGateTheGpuIsThere) {
  const int stream = arrivals_.take_index();
  launch(stream, 5000);
  launch(stream, 5000);
  gpu_comes_to(stream, 1);
  arrivals_.gate_closed(now_, true);
  EXPECT_TRUE(complete_after(0));
}

// Prevents: a wait for a number that does not come, because nothing more is queued.
TEST_F(ArrivalsAtTheGate, BehindTheLastWaitTheDurationCounts) {
  const int stream = arrivals_.take_index();
  launch(stream, 5000);
  arrivals_.add_work(stream, 100 * kUs, true, false);
  gpu_comes_to_last(stream);
  static_cast<void>(complete_after(0));
  close_gate();
  EXPECT_FALSE(complete_after(5050));
  EXPECT_TRUE(complete_after(100)) << "5.1 ms since the GPU came to it";
  launch(stream, 1000);
  EXPECT_FALSE(complete_after(300)) << "this wait is new, and the GPU has not come to it";
  gpu_comes_to_last(stream);
  EXPECT_TRUE(complete_after(0));
}

TEST_F(ArrivalsAtTheGate, AllStreamsCount) {
  const int one = arrivals_.take_index();
  const int other = arrivals_.take_index();
  ASSERT_NE(one, other);
  for (const int stream : {one, other}) {
    launch(stream, 5000);
    launch(stream, 5000);
    gpu_comes_to(stream, 1);
  }
  close_gate();
  gpu_comes_to_last(one);
  EXPECT_FALSE(complete_after(30));
  gpu_comes_to_last(other);
  EXPECT_TRUE(complete_after(30));
}

// Prevents: a write that the driver refused, for which a turn waits each time.
TEST_F(ArrivalsAtTheGate, ARefusedWriteIsNotWaitedFor) {
  const int stream = arrivals_.take_index();
  launch(stream, 10);
  gpu_comes_to_last(stream);
  launch(stream, 10);
  arrivals_.take_back(stream);
  close_gate();
  EXPECT_TRUE(complete_after(100)) << "as if it had not been";
}

// Prevents: the numbers of an ended stream are taken for those of the next one.
TEST_F(ArrivalsAtTheGate, AnEndedStreamIsNotWaitedFor) {
  const int stream = arrivals_.take_index();
  launch(stream, 10);
  launch(stream, 10);
  close_gate();
  EXPECT_FALSE(complete_after(100));
  arrivals_.give_back(stream);
  EXPECT_TRUE(complete_after(0));
  EXPECT_EQ(arrivals_.take_index(), stream);
  launch(stream, 10);
  launch(stream, 10);
  EXPECT_EQ(numbers_[0], 4U) << "a late write of the old stream is no number of the new one";
}

TEST_F(ArrivalsAtTheGate, ThereAreFewIndexes) {
  for (std::size_t i = 0; i < Arrivals::kStreams; ++i) EXPECT_GE(arrivals_.take_index(), 0);
  EXPECT_EQ(arrivals_.take_index(), -1);
  arrivals_.give_back(-1);
  arrivals_.give_back(3);
  EXPECT_EQ(arrivals_.take_index(), 3);
}

TEST(ArrivalsOfASlowGpu, TakeLonger) {
  std::array<shm::TurnLine::Word, Arrivals::kStreams> words{};
  Arrivals arrivals(words, 10);
  const int stream = arrivals.take_index();
  arrivals.add_work(stream, 100 * kUs, true, true);
  words[0].store(arrivals.next(stream));
  arrivals.gate_closed(1, false);
  EXPECT_FALSE(arrivals.complete(900 * kUs));
  EXPECT_TRUE(arrivals.complete(1001 * kUs));
}

}  // namespace
}  // namespace sluice::intercept::test
