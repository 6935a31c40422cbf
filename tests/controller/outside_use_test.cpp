// Which programs outside Sluice use a GPU, by what NVML has measured, in virtual time.
#include "controller/outside_use.hpp"

#include <gtest/gtest.h>

namespace sluice::controller {
namespace {

using Words = std::map<int, shm::OutsideWord>;

constexpr std::uint64_t kSecond = 1'000'000'000;
constexpr std::uint32_t kPid = 4711;

class OutsideUseTest : public testing::Test {
 protected:
  /// What is known of device 2 after so many looks, with this part of the GPU used in each.
  shm::OutsideWord after(int looks, std::optional<unsigned> percent) {
    OutsideUse::Measured measured;
    if (percent) measured.emplace();
    if (percent.value_or(0) != 0) measured->emplace(kPid, *percent);
    shm::OutsideWord word;
    for (int i = 0; i < looks; ++i) {
      now_ns_ += 2 * kSecond;
      word = use_.look(found_, {{2, measured}}, now_ns_)[2];
    }
    return word;
  }

  OutsideUse use_;
  std::vector<shm::OutsideProcess> found_{{2, kPid, {}, {}, false}};
  std::uint64_t now_ns_ = 1000 * kSecond;
};

// Prevents: a notebook that was left open, outside Sluice, switches short slices off.
TEST_F(OutsideUseTest, AContextIsNone) { EXPECT_EQ(after(100, 0), shm::OutsideWord{}); }

TEST_F(OutsideUseTest, ABusyProgramIsKnownAtTheSecondLook) {
  EXPECT_EQ(after(2, 100), (shm::OutsideWord{1, 0}));
  EXPECT_EQ(after(20, 100), (shm::OutsideWord{1, 0}));
  EXPECT_EQ(after(4, 0), (shm::OutsideWord{0, 1})) << "it has just stopped";
  EXPECT_EQ(after(12, 0), shm::OutsideWord{});
}

// Prevents: a small service outside waits 100 ms for a long slice.
TEST_F(OutsideUseTest, ALittleUseIsAwakeAndNotBusy) {
  EXPECT_EQ(after(1000, 1), (shm::OutsideWord{0, 1}));
  EXPECT_EQ(after(20, 0), shm::OutsideWord{});
}

TEST_F(OutsideUseTest, WhatNobodyCanTellIsAwakeAndNotBusy) {
  EXPECT_EQ(after(100, std::nullopt), (shm::OutsideWord{0, 1})) << "a MIG instance";
  found_.front().pid = 0;
  EXPECT_EQ(after(100, 100), (shm::OutsideWord{0, 1})) << "a pid of another namespace";
}

// Prevents: the use of a process that has ended, counted for the next one with its pid.
TEST_F(OutsideUseTest, EndsWithTheProcess) {
  EXPECT_EQ(after(5, 100).busy, 1);
  const auto process = found_;
  found_.clear();
  EXPECT_EQ(use_.look(found_, {}, now_ns_ + kSecond), Words{});
  found_ = process;
  EXPECT_EQ(after(1, 100), (shm::OutsideWord{0, 1}));
}

TEST_F(OutsideUseTest, IsCountedByDevice) {
  found_ = {{0, 1, {}, {}, false}, {0, 2, {}, {}, false}, {1, 1, {}, {}, false}};
  const std::map<int, OutsideUse::Measured> measured{{0, {{{1, 50}, {2, 60}}}}, {1, {{{2, 90}}}}};
  static_cast<void>(use_.look(found_, measured, kSecond));
  EXPECT_EQ(use_.look(found_, measured, 3 * kSecond), (Words{{0, {2, 0}}, {1, {}}}));
}

}  // namespace
}  // namespace sluice::controller
