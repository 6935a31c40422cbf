// What is learned of channel groups from the requests of a driver, and whose slices are set. The
// kernel module is a table in this test.
#include "intercept/driver/channel_groups.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <thread>
#include <utility>
#include <vector>

#include "intercept/driver/process.hpp"

namespace sluice::intercept::test {
namespace {

using Result = ChannelGroups::Result;

constexpr unsigned long kAllocate = 0xc030'462b;
constexpr unsigned long kControl = 0xc020'462a;
constexpr unsigned long kRelease = 0xc010'4629;
constexpr std::uint32_t kClient = 0xc1d0'001b;
constexpr std::uint32_t kDevice = 0x5c00'0002;
constexpr int kFd = 8;

/// The slices of the groups that exist, and what was asked for.
struct Kernel {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> slices;
  std::vector<int> fds;
  int fails_at = -1;  ///< The request of this number fails, from 0.
  bool refuses = false;
  bool ignores = false;
};
Kernel g_kernel;

bool ask(int fd, std::uint32_t client, std::uint32_t object, bool sets,
         std::uint64_t& us) noexcept {
  const auto found = g_kernel.slices.find({client, object});
  g_kernel.fds.push_back(fd);
  if (static_cast<int>(g_kernel.fds.size()) - 1 == g_kernel.fails_at) return false;
  if (found == g_kernel.slices.end() || (sets && g_kernel.refuses)) return false;
  if (sets && !g_kernel.ignores) found->second = us;
  if (!sets) us = found->second;
  return true;
}

class Groups : public testing::Test {
 protected:
  Groups() {
    g_kernel = {};
    g_process.driver_ready.store(true);
  }

  struct Allocation {
    std::uint32_t client = kClient;
    std::uint32_t parent = kDevice;
    std::uint32_t object = 0;
    std::uint32_t object_class = 0xa06c;
    std::uint64_t parameters = 0;
    std::uint64_t rights = 0;
    std::uint32_t size = 0;
    std::uint32_t flags = 0;
    std::uint32_t status = 0;
    std::uint32_t padding = 0;
  };

  void allocate(Allocation asked, std::uint32_t engine = 1, unsigned long request = kAllocate) {
    const std::array<std::uint32_t, 8> parameters{0, 0, 0, engine};
    asked.parameters = std::bit_cast<std::uint64_t>(parameters.data());
    groups_.saw(kFd, request, &asked);
  }
  /// As libcuda makes a context: a group for kernels, two for copies, and the slice.
  void make_context(CUdevice device, std::uint32_t object, std::uint32_t parent = kDevice) {
    ChannelGroups::begins_context(device);
    make_group(object, parent);
    g_kernel.slices[{kClient, object + 1}] = 1024;
    allocate({.parent = parent, .object = object + 1}, 11);
    groups_.ends_context(device);
  }
  void make_group(std::uint32_t object, std::uint32_t parent = kDevice) {
    g_kernel.slices[{kClient, object}] = 2048;
    allocate({.parent = parent, .object = object});
  }
  void release(std::uint32_t object, std::uint32_t status = 0) {
    const std::array<std::uint32_t, 4> asked{kClient, kDevice, object, status};
    groups_.saw(kFd, kRelease, asked.data());
  }
  std::uint64_t slice_of(std::uint32_t object) { return g_kernel.slices[{kClient, object}]; }

  ChannelGroups groups_{&ask};
};

TEST_F(Groups, TheSliceOfKernelsIsSetAndGivenBack) {
  EXPECT_EQ(groups_.set(0, 100), Result::kNone);
  make_context(0, 0x15);
  EXPECT_EQ(groups_.set(0, 100), Result::kSet);
  EXPECT_EQ(slice_of(0x15), 100U);
  EXPECT_EQ(slice_of(0x16), 1024U) << "copies";
  EXPECT_EQ(groups_.set(0, 250), Result::kSet);
  EXPECT_EQ(groups_.set(0, 0), Result::kSet);
  EXPECT_EQ(slice_of(0x15), 2048U) << "what the driver had set";
  for (const int fd : g_kernel.fds) EXPECT_EQ(fd, kFd);
}

TEST_F(Groups, AllContextsOfTheDeviceAndNoOther) {
  make_context(0, 0x15);
  make_context(0, 0x25);
  make_context(1, 0x35, 0x5c00'0900);
  EXPECT_EQ(groups_.set(0, 100), Result::kSet);
  EXPECT_EQ(slice_of(0x15) + slice_of(0x25), 200U);
  EXPECT_EQ(slice_of(0x35), 2048U);
  EXPECT_EQ(groups_.set(1, 300), Result::kSet);
  EXPECT_EQ(slice_of(0x35), 300U);
  EXPECT_EQ(slice_of(0x15), 100U);
}

TEST_F(Groups, WhatNoContextOfOursMadeIsNotTouched) {
  make_group(0x15);
  EXPECT_EQ(groups_.set(0, 100), Result::kNone) << "a graphics library";
  make_context(0, 0x25);
  make_group(0x35, 0x5c00'0700);
  make_group(0x45);  // a green context's, for example
  EXPECT_EQ(groups_.set(0, 100), Result::kSet);
  EXPECT_EQ(slice_of(0x15), 2048U);
  EXPECT_EQ(slice_of(0x25), 100U);
  EXPECT_EQ(slice_of(0x35), 2048U);
  EXPECT_EQ(slice_of(0x45), 100U) << "of the same parent";
}

TEST_F(Groups, WhatHasEndedIsForgotten) {
  make_context(0, 0x15);
  make_context(0, 0x25);
  release(0x15, 0x57);
  EXPECT_EQ(groups_.set(0, 100), Result::kSet);
  EXPECT_EQ(slice_of(0x15), 100U) << "the release failed";
  release(0x15);
  EXPECT_EQ(groups_.set(0, 200), Result::kSet);
  EXPECT_EQ(slice_of(0x15), 100U);
  EXPECT_EQ(slice_of(0x25), 200U);
  release(kDevice);
  EXPECT_EQ(groups_.set(0, 300), Result::kNone);
  make_group(0x45);
  EXPECT_EQ(groups_.set(0, 300), Result::kNone) << "the parent may be another device's now";
  make_context(0, 0x55);
  release(kClient);
  EXPECT_EQ(groups_.set(0, 300), Result::kNone);
}

TEST_F(Groups, WhatLooksDifferentIsNoGroup) {
  ChannelGroups::begins_context(0);
  g_kernel.slices[{kClient, 0x15}] = 2048;
  allocate({.object = 0x15, .status = 1});
  allocate({.object = 0x15, .object_class = 0xa06f});
  allocate({.object = 0x15}, 9);
  allocate({.object = 0x15}, 1, 0xc028'462b);
  allocate({.object = 0x15}, 1, 0xc030'462c);
  Allocation without{.object = 0x15};
  groups_.saw(kFd, kAllocate, &without);
  groups_.saw(kFd, kAllocate, nullptr);
  groups_.ends_context(0);
  EXPECT_EQ(groups_.set(0, 100), Result::kNone);
}

TEST_F(Groups, ARefusalIsAnAnswer) {
  make_context(0, 0x15);
  g_kernel.refuses = true;
  EXPECT_EQ(groups_.set(0, 100), Result::kRefused);
  g_kernel.refuses = false;
  g_kernel.ignores = true;
  EXPECT_EQ(groups_.set(0, 100), Result::kRefused) << "read back";
  g_kernel.ignores = false;
  EXPECT_EQ(groups_.set(0, 100), Result::kSet);
}

TEST_F(Groups, ChangesAreSeen) {
  const std::uint32_t first = groups_.changes(0);
  make_context(0, 0x15);
  const std::uint32_t made = groups_.changes(0);
  EXPECT_NE(made, first);
  std::uint64_t value = 2048;
  const auto control = [&](std::uint32_t object, std::uint32_t command, std::uint32_t status) {
    struct {
      std::uint32_t client, object, command, flags;
      std::uint64_t parameters;
      std::uint32_t size, status;
    } asked{kClient, object, command, 0, std::bit_cast<std::uint64_t>(&value), 8, status};
    groups_.saw(kFd, kControl, &asked);
  };
  control(0x15, 0xa06c'0101, 0);
  control(0x15, 0xa06c'0103, 1);
  control(0x99, 0xa06c'0103, 0);
  EXPECT_EQ(groups_.changes(0), made);
  control(0x15, 0xa06c'0103, 0);
  EXPECT_NE(groups_.changes(0), made) << "the driver has set its slice again";
  EXPECT_EQ(groups_.changes(1), 0U);
}

// Prevents: the 65th context keeps the driver's slice, and status says that its slice is short.
TEST_F(Groups, AreAllSetHoweverManyThereAre) {
  constexpr std::uint32_t kMany = 5 * ChannelGroups::kMost + 3;
  for (int round = 0; round < 2; ++round) {
    for (std::uint32_t i = 0; i < kMany; ++i) make_context(0, 0x100 + 2 * i);
    EXPECT_EQ(groups_.set(0, 100), Result::kSet);
    EXPECT_EQ(groups_.longest_us(), 100U);
    for (std::uint32_t i = 0; i < kMany; ++i) ASSERT_EQ(slice_of(0x100 + 2 * i), 100U) << i;
    EXPECT_EQ(groups_.set(0, 0), Result::kSet);
    for (std::uint32_t i = 0; i < kMany; ++i) ASSERT_EQ(slice_of(0x100 + 2 * i), 2048U) << i;
    for (std::uint32_t i = 0; i < kMany; ++i) release(0x100 + 2 * i);
    EXPECT_EQ(groups_.set(0, 100), Result::kNone);
  }
}

// Prevents: the other contexts of a program keep their slices, because one context ended while they
// were set, and nobody asks again.
TEST_F(Groups, AContextThatEndsMeanwhileIsNoReasonForTheOthers) {
  for (const std::uint32_t us : {100U, 0U}) {
    for (const std::uint32_t ended : {0x15U, 0x25U, 0x35U}) {
      for (const std::uint32_t object : {0x15U, 0x25U, 0x35U}) make_context(0, object);
      ASSERT_EQ(groups_.set(0, us == 0 ? 100 : 0), Result::kSet);
      const std::uint32_t before = groups_.changes(0);
      g_kernel.slices.erase({kClient, ended});
      groups_.set(0, us);
      for (const std::uint32_t object : {0x15U, 0x25U, 0x35U}) {
        EXPECT_TRUE(object == ended || slice_of(object) == (us == 0 ? 2048 : us));
      }
      release(ended);
      EXPECT_NE(groups_.changes(0), before) << "whoever was refused asks again";
      EXPECT_EQ(groups_.set(0, us), Result::kSet);
      for (const std::uint32_t object : {0x15U, 0x25U, 0x35U}) release(object);
    }
  }
}

// Prevents: a setting is said to be made that was not, or the other way round.
TEST_F(Groups, OneRequestThatFailsIsSaidAndMadeGoodByTheNextSetting) {
  for (const std::uint32_t us : {100U, 0U}) {
    for (int fails_at = 0; fails_at < 12; ++fails_at) {
      for (const std::uint32_t object : {0x15U, 0x25U, 0x35U}) make_context(0, object);
      ASSERT_EQ(groups_.set(0, us == 0 ? 100 : 0), Result::kSet);
      g_kernel.fds.clear();
      g_kernel.fails_at = fails_at;
      const Result result = groups_.set(0, us);
      std::uint64_t longest = 0;
      bool all = true;
      for (const std::uint32_t object : {0x15U, 0x25U, 0x35U}) {
        longest = std::max(longest, slice_of(object));
        all = all && slice_of(object) == (us == 0 ? 2048 : us);
      }
      EXPECT_TRUE(result != Result::kSet || all) << fails_at;
      EXPECT_TRUE(groups_.longest_us() == 0 || groups_.longest_us() == longest) << fails_at;
      g_kernel.fails_at = -1;
      EXPECT_EQ(groups_.set(0, us), Result::kSet);
      EXPECT_EQ(groups_.longest_us(), us);
      for (const std::uint32_t object : {0x15U, 0x25U, 0x35U}) {
        EXPECT_EQ(slice_of(object), us == 0 ? 2048 : us) << fails_at;
        release(object);
      }
    }
  }
}

// Prevents: a program gets back a slice that libcuda has replaced since.
TEST_F(Groups, TheDriversSliceIsTheOneThatLibcudaSetLast) {
  make_context(0, 0x15);
  ASSERT_EQ(groups_.set(0, 100), Result::kSet);
  std::uint64_t value = 4096;
  struct {
    std::uint32_t client, object, command, flags;
    std::uint64_t parameters;
    std::uint32_t size, status;
  } asked{kClient, 0x15, 0xa06c'0103, 0, std::bit_cast<std::uint64_t>(&value), sizeof value, 0};
  g_kernel.slices[{kClient, 0x15}] = value;
  groups_.saw(kFd, kControl, &asked);
  ASSERT_EQ(groups_.set(0, 100), Result::kSet);
  EXPECT_EQ(groups_.set(0, 0), Result::kSet);
  EXPECT_EQ(slice_of(0x15), 4096U);
}

// Prevents: two threads that make contexts at once get the same place, or one loses its group.
TEST_F(Groups, ManyThreadsMakeAndEndThem) {
  constexpr std::uint32_t kEach = 100;
  constexpr std::uint32_t kThreads = 4;
  for (std::uint32_t i = 0; i < kThreads * kEach; ++i) {
    g_kernel.slices[{kClient, 0x100 + i}] = 2048;
  }
  std::vector<std::thread> threads;
  for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      ChannelGroups::begins_context(0);
      for (int round = 0; round < 20; ++round) {
        for (std::uint32_t i = 0; i < kEach; ++i) {
          const std::uint32_t object = 0x100 + thread * kEach + i;
          if (round != 0) release(object);
          allocate({.object = object});
        }
      }
      groups_.ends_context(0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(groups_.set(0, 100), Result::kSet);
  for (const auto& [group, us] : g_kernel.slices) EXPECT_EQ(us, 100U) << group.second;
}

TEST(IoctlRequests, OnlyThreeMatter) {
  for (const unsigned long request : {kAllocate, kControl, kRelease}) {
    EXPECT_TRUE(ChannelGroups::matters(request));
  }
  for (const unsigned long request : {0xc030'462cUL, 0xc030'4628UL, 0x5401UL, 0UL, 0x462UL}) {
    EXPECT_FALSE(ChannelGroups::matters(request));
  }
}

}  // namespace
}  // namespace sluice::intercept::test
