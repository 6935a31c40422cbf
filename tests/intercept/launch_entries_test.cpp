// Every entry that gives the GPU work obeys the gate and is counted. Prevents: thousands of kernels
// that a program launches by an old entry, which nobody holds, counts or names.
#include <gtest/gtest.h>

#include <thread>

#include "shm/entry_names.hpp"
#include "tests/intercept/session.hpp"
#include "tests/intercept/snippets.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::intercept::test {
namespace {

class LaunchEntries : public Session {};

TEST_F(LaunchEntries, EachIsHeldAtAClosedGateAndIsCounted) {
  attach("gate");
  outrank();
  for (std::size_t i = 0; i < shm::kEntryNames.size(); ++i) {
    const Snippet& snippet = snippets()[i];
    ASSERT_EQ(snippet.name, shm::kEntryNames[i]);
    SCOPED_TRACE(snippet.name);
    const std::uint64_t before = slot().entries[i].launches();
    const std::uint64_t waited_before = slot().entries[i][shm::Count::kWaited].load();
    fake::clear();
    critical_->begin();
    std::thread program([&] { EXPECT_EQ(snippet.call_linked(), CUDA_SUCCESS); });
    EXPECT_TRUE(eventually([&] { return slot().entries[i].launches() > before; }));
    EXPECT_EQ(fake::count(snippet.id), 0U) << "reached the driver though the gate is closed";
    critical_->end();
    program.join();
    EXPECT_EQ(fake::count(snippet.id), 1U);
    EXPECT_GT(slot().entries[i][shm::Count::kWaited].load(), waited_before);
  }
}

/// Each kernel of one call is counted where it runs.
TEST_F(LaunchEntries, AKernelOnSeveralDevicesIsCountedOnEach) {
  attach("gate");
  std::array<CUDA_LAUNCH_PARAMS, 2> kernels{};
  for (CUDA_LAUNCH_PARAMS& kernel : kernels) kernel.hStream = make_stream();
  const std::uint64_t before = launches();
  EXPECT_EQ(::cuLaunchCooperativeKernelMultiDevice(kernels.data(), 2, 0), CUDA_SUCCESS);
  EXPECT_EQ(launches(), before + 2);
  EXPECT_EQ(::cuLaunchCooperativeKernelMultiDevice(nullptr, 2, 0), CUDA_SUCCESS) << "as it is told";
  EXPECT_EQ(launches(), before + 2);
}

}  // namespace
}  // namespace sluice::intercept::test
