// The kick: the GPU is switched to this process before a job that it announced, and nothing of it
// may stop the process itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "sluice/sluice.h"
#include "tests/intercept/above.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using fake::Id;

/// In a context that the GPU can be switched to.
class Kicks : public Above {
 protected:
  void retain_context(int priority = 5) {
    choose("gate", priority);       // read at the first call
    fake::set_stream_waits(false);  // nor any other attribute: else it says that it has MPS
    CUcontext context = nullptr;
    ::cuDevicePrimaryCtxRetain(&context, 0);
  }
  void attach_above_with_context() {
    retain_context();
    attach_above();
  }
  /// Of the loading of modules and launches, as far as there were any since the last clear().
  static std::string order() {
    std::string order;
    for (const fake::Call& call : fake::calls()) {
      if (call.id == Id::cuModuleLoadData) order += 'M';
      if (call.id == Id::cuLaunchKernel) order += 'K';
    }
    return order;
  }
  static auto kicks() {
    const std::vector<fake::Call> calls = fake::calls();
    return std::count_if(calls.begin(), calls.end(), [](const fake::Call& call) {
      return call.id == Id::cuLaunchKernel && call.arguments[0] == fake::kLoadedFunction;
    });
  }
  static bool kicked() { return kicks() != 0; }
};

TEST_F(Kicks, TheGpuIsSwitchedBeforeTheJob) {
  attach_above_with_context();
  const std::uint64_t announced = sluice_job_announce(base::monotonic_ns() + 2 * kMs);
  EXPECT_TRUE(eventually([] { return kicked(); }));
  sluice_job_cancel(announced);
}

// Later the driver does not return from the loading before all work of the context has ended, and
// takes no launch meanwhile: that work may wait for a launch to come, or for the program.
// Seen to fail where it was loaded before the first launch.
TEST_F(Kicks, ItIsLoadedWhenTheContextBeginsOrNever) {
  retain_context();
  EXPECT_EQ(order(), "M");
  retain_context();
  start_controller();
  launch();
  EXPECT_EQ(order(), "MK");
  ASSERT_EQ(::cuDevicePrimaryCtxReset(0), CUDA_SUCCESS);
  retain_context();
  EXPECT_EQ(order(), "MKM") << "its function ended with the context";
}

// Seen to fail where it was forgotten with any green context.
TEST_F(Kicks, ItOutlivesAGreenContext) {
  attach_above_with_context();
  CUgreenCtx green = nullptr;
  ASSERT_EQ(::cuGreenCtxCreate(&green, nullptr, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuGreenCtxDestroy(green), CUDA_SUCCESS);
  EXPECT_TRUE(eventually([] {
    const std::uint64_t announced = sluice_job_announce(base::monotonic_ns());
    std::this_thread::sleep_for(1ms);
    sluice_job_cancel(announced);
    return kicked();
  }));
}

// Another thread, too, gives it work only then. Seen to fail without the loop in retained().
TEST_F(Kicks, NobodyGetsTheContextWhileItIsLoaded) {
  choose("gate", 5);
  fake::set_stream_waits(false);
  fake::stall(Id::cuModuleLoadData);
  std::thread first([this] { retain_context(); });
  EXPECT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  std::atomic<bool> has_it{false};
  std::thread second([this, &has_it] {
    retain_context();
    has_it.store(true);
  });
  std::this_thread::sleep_for(100ms);
  EXPECT_FALSE(has_it.load());
  // But not for ever: the driver loads its compiler, and who waits may hold the loader's lock.
  EXPECT_TRUE(eventually([&has_it] { return has_it.load(); }));
  fake::unstall();
  first.join();
  second.join();
  EXPECT_EQ(order(), "M");
}

// Seen to fail without RelaxedCapture in load().
TEST_F(Kicks, ItsLoadingBreaksNoCapture) {
  choose("gate", 5);
  fake::set_stream_waits(false);
  CUcontext own = nullptr;
  ASSERT_EQ(::cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
  CUstream stream = make_stream();
  ASSERT_EQ(::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  retain_context();
  EXPECT_EQ(order(), "M");
  CUgraph graph = nullptr;
  EXPECT_EQ(::cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
}

TEST_F(Kicks, PriorityZeroHasNone) {
  retain_context(0);
  EXPECT_EQ(order(), "");
}

// Where PTX cannot be compiled, for instance.
TEST_F(Kicks, WithoutAKickTheGatesCloseAllTheSame) {
  fake::answer(Id::cuModuleLoadData, CUDA_ERROR_NO_BINARY_FOR_GPU);
  attach_above_with_context();
  sluice_job_announce(base::monotonic_ns());
  EXPECT_TRUE(eventually([&] { return closed(); }));
  EXPECT_TRUE(eventually([&] { return !closed(); }));
  EXPECT_EQ(order(), "");
}

// A kick passes no gate: it would cut into the job that this client is held for.
// Seen to fail without EarlySwitch::may_switch().
TEST_F(Kicks, WhoIsHeldDoesNotKick) {
  attach_above_with_context();
  outrank().begin();
  ASSERT_TRUE(eventually([&] { return slot().gate.load() != 0; }));
  const std::uint64_t job = slot().job.load();
  sluice_job_announce(base::monotonic_ns());
  EXPECT_TRUE(eventually([&] { return slot().job.load() == job + 2; })) << "it lapses";
  EXPECT_FALSE(kicked());
}

// The notice thread is inside the driver, which may block while the program loads or allocates.
// Seen to fail without the lapse_announcements() of the watcher.
TEST_F(Kicks, AnAnnouncementLapsesBesideOneThatBlocks) {
  attach_above_with_context();
  fake::stall(Id::cuLaunchKernel);
  // Again if the machine stood still for so long that it lapsed before the kick.
  ASSERT_TRUE(eventually([&] {
    if (!shm::is_active(slot().job.load())) sluice_job_announce(base::monotonic_ns() + 2 * kMs);
    std::this_thread::sleep_for(4ms);
    return fake::stalled_threads() == 1;
  }));
  EXPECT_TRUE(eventually([&] { return !shm::is_active(slot().job.load()); }));
  EXPECT_FALSE(closed());
  fake::unstall();
}

// A server announces the next jobs while a long kernel of its own fills the GPU: their queue would
// fill, and then the driver blocks the whole process. Seen to fail, with 200 of them, without the
// query in EarlySwitch::operator().
TEST_F(Kicks, NoneIsPutBehindOneThatHasNotRun) {
  attach_above_with_context();
  fake::pause();
  const std::uint64_t job = slot().job.load();
  sluice_job_announce(base::monotonic_ns() + 2 * kMs);
  EXPECT_TRUE(eventually([&] { return slot().job.load() == job + 2; })) << "it lapses";
  EXPECT_LE(kicks(), 1);
  fake::resume();
  fake::clear();
  EXPECT_TRUE(eventually([&] {
    if (!shm::is_active(slot().job.load())) sluice_job_announce(base::monotonic_ns() + 2 * kMs);
    return kicks() > 1;
  }));
}

TEST_F(Kicks, AStreamEndsBesideOneThatBlocks) {
  attach_above_with_context();
  CUstream stream = make_stream();
  fake::stall(Id::cuLaunchKernel);
  sluice_job_announce(base::monotonic_ns());
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  const std::uint64_t begin = base::monotonic_ns();
  EXPECT_EQ(::cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  EXPECT_LT(base::monotonic_ns() - begin, 3000 * kMs);
  fake::unstall();
}

}  // namespace
}  // namespace sluice::intercept::test
