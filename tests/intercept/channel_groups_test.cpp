// What is learned of channel groups from the requests of a driver, and whose slices are set. The
// kernel module is a table in this test.
#include "intercept/driver/channel_groups.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <map>
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
  bool refuses = false;
  bool ignores = false;
};
Kernel g_kernel;

bool ask(int fd, std::uint32_t client, std::uint32_t object, bool sets,
         std::uint64_t& us) noexcept {
  const auto found = g_kernel.slices.find({client, object});
  g_kernel.fds.push_back(fd);
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

TEST_F(Groups, MoreThanThereArePlacesForDoNoHarm) {
  for (std::uint32_t i = 0; i < 2 * ChannelGroups::kMost; ++i) make_context(0, 0x100 + 2 * i);
  EXPECT_EQ(groups_.set(0, 100), Result::kSet);
  EXPECT_EQ(slice_of(0x100), 100U);
  for (std::uint32_t i = 0; i < 2 * ChannelGroups::kMost; ++i) release(0x100 + 2 * i);
  EXPECT_EQ(groups_.set(0, 100), Result::kNone);
  make_context(0, 0x15);
  EXPECT_EQ(groups_.set(0, 100), Result::kSet);
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
