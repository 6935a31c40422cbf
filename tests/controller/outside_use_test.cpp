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
    OutsideUse::Device device;
    if (percent) device.percent.emplace();
    if (percent.value_or(0) != 0) device.percent->emplace(kPid, *percent);
    shm::OutsideWord word;
    for (int i = 0; i < looks; ++i) {
      now_ns_ += 2 * kSecond;
      word = use_.look(found_, {{2, device}}, now_ns_)[2];
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
}

// Prevents: in a container whose pids NVML does not know, a client of Sluice taken for a program
// outside; or a busy program outside never seen.
TEST_F(OutsideUseTest, WherePidsMeanNothingTheBusyAreCounted) {
  found_ = {{0, 0, {}, {}, false}, {0, 0, {}, {}, false}};
  const OutsideUse::Device busy_device{.percent{{{1, 99}, {2, 99}, {3, 99}}}};
  const auto word = [&](int busy, int clients) {
    OutsideUse::Device device{.percent{{{7, 0}}}, .clients = clients};
    for (int i = 0; i < busy; ++i) device.percent->emplace(100 + i, 50);
    shm::OutsideWord seen;
    for (int i = 0; i < 3; ++i) {
      now_ns_ += 2 * kSecond;
      seen = use_.look(found_, {{0, device}, {1, busy_device}}, now_ns_)[0];
    }
    return seen;
  };
  EXPECT_EQ(word(2, 2), (shm::OutsideWord{0, 2}));
  EXPECT_EQ(word(3, 2), (shm::OutsideWord{1, 1}));
  EXPECT_EQ(word(9, 2), (shm::OutsideWord{2, 0}));
  EXPECT_EQ(word(1, 2), (shm::OutsideWord{0, 2}));
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
  const std::map<int, OutsideUse::Device> devices{{0, {.percent{{{1, 50}, {2, 60}}}}},
                                                  {1, {.percent{{{2, 90}}}}}};
  static_cast<void>(use_.look(found_, devices, kSecond));
  EXPECT_EQ(use_.look(found_, devices, 3 * kSecond), (Words{{0, {2, 0}}, {1, {}}}));
}

}  // namespace
}  // namespace sluice::controller
