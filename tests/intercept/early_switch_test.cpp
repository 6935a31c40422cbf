// The early switch: the GPU switches to this process before an announced job. It must never block
// the process itself.
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
class EarlySwitches : public Above {
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
  /// The calls that load modules or launch since the last clear().
  static std::string order() {
    std::string order;
    for (const fake::Call& call : fake::calls()) {
      if (call.id == Id::cuModuleLoadData) order += 'M';
      if (call.id == Id::cuLaunchKernel) order += 'K';
    }
    return order;
  }
  static auto switches() {
    const std::vector<fake::Call> calls = fake::calls();
    return std::count_if(calls.begin(), calls.end(), [](const fake::Call& call) {
      return call.id == Id::cuLaunchKernel && call.arguments[0] == fake::kLoadedFunction;
    });
  }
  static bool switched() { return switches() != 0; }
  static pid_t announcing_thread() {
    const auto folder = notice_thread();
    return folder ? std::stoi(folder->filename()) : 0;
  }
  /// How often the thread has entered a context since the last clear().
  static auto entered_by(pid_t thread) {
    const std::vector<fake::Call> calls = fake::calls();
    return std::count_if(calls.begin(), calls.end(), [thread](const fake::Call& call) {
      return call.id == Id::cuCtxPushCurrent_v2 && call.thread == thread;
    });
  }
};

TEST_F(EarlySwitches, TheGpuIsSwitchedBeforeTheJob) {
  attach_above_with_context();
  // Again if the machine stood still so long that the announcement lapsed before the switch.
  EXPECT_TRUE(eventually([] {
    const std::uint64_t announced = sluice_job_announce(base::monotonic_ns() + 2 * kMs);
    const bool done = eventually([] { return switched(); }, 20ms);
    sluice_job_cancel(announced);
    return done;
  }));
}

// Prevents: a later load. The driver would not return from it before all work of the context has
// ended, and would accept no launch meanwhile; that work may wait for a launch or for the program.
// Seen to fail when the module was loaded before the first launch.
TEST_F(EarlySwitches, ItIsLoadedWhenTheContextBeginsOrNever) {
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

// Seen to fail when any green context ended it.
TEST_F(EarlySwitches, ItOutlivesAGreenContext) {
  attach_above_with_context();
  CUgreenCtx green = nullptr;
  ASSERT_EQ(::cuGreenCtxCreate(&green, nullptr, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuGreenCtxDestroy(green), CUDA_SUCCESS);
  EXPECT_TRUE(eventually([] {
    const std::uint64_t announced = sluice_job_announce(base::monotonic_ns());
    std::this_thread::sleep_for(1ms);
    sluice_job_cancel(announced);
    return switched();
  }));
}

// Another thread also gives the context work only after the load. Seen to fail without the wait in
// returned().
TEST_F(EarlySwitches, NobodyGetsTheContextWhileItIsLoaded) {
  choose("gate", 5);
  fake::set_stream_waits(false);
  fake::stall(Id::cuModuleLoadData);
  std::thread first([this] { retain_context(); });
  EXPECT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  std::atomic<bool> has_it{false};
  std::thread second([this, &has_it] {
    const std::uint64_t begin = base::monotonic_ns();
    retain_context();
    EXPECT_GE(base::monotonic_ns() - begin, 100 * kMs);
    has_it.store(true);
  });
  // The wait is bounded: the driver loads its compiler, and the waiting thread may hold the
  // loader's lock.
  EXPECT_TRUE(eventually([&has_it] { return has_it.load(); }));
  fake::unstall();
  first.join();
  second.join();
  EXPECT_EQ(order(), "M");
}

// Seen to fail without RelaxedCapture in load().
TEST_F(EarlySwitches, ItsLoadingBreaksNoCapture) {
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

TEST_F(EarlySwitches, PriorityZeroHasNone) {
  retain_context(0);
  EXPECT_EQ(order(), "");
}

// For example, if PTX cannot be compiled.
TEST_F(EarlySwitches, WithoutAnEarlySwitchTheGatesCloseAllTheSame) {
  fake::answer(Id::cuModuleLoadData, CUDA_ERROR_NO_BINARY_FOR_GPU);
  attach_above_with_context();
  announce_until_closed();
  EXPECT_TRUE(eventually([&] { return !closed(); }));
  EXPECT_EQ(order(), "");
}

// An early switch passes no gate, so it would interrupt the job that holds this client. Seen to
// fail without EarlySwitch::may_switch().
TEST_F(EarlySwitches, WhoIsHeldDoesNotSwitch) {
  attach_above_with_context();
  outrank().begin();
  ASSERT_TRUE(eventually([&] { return slot().gate.load() != 0; }));
  announce_until_one_lapses();
  EXPECT_FALSE(switched());
}

// The announcing thread may be blocked in the driver while the program loads or allocates. Seen to
// fail without the lapse() of the watcher.
TEST_F(EarlySwitches, AnAnnouncementLapsesBesideOneThatBlocks) {
  attach_above_with_context();
  fake::stall(Id::cuLaunchKernel);
  // Try again if the machine stood still so long that the announcement lapsed before the switch.
  ASSERT_TRUE(eventually([&] {
    if (!shm::is_active(slot().job.load())) sluice_job_announce(base::monotonic_ns() + 2 * kMs);
    std::this_thread::sleep_for(4ms);
    return fake::stalled_threads() == 1;
  }));
  EXPECT_TRUE(eventually([&] { return !shm::is_active(slot().job.load()); }));
  EXPECT_FALSE(closed());
  fake::unstall();
}

// A server announces its next jobs while a long kernel of its own fills the GPU: the early switches
// would fill their queue, and then the driver blocks the whole process. Seen to fail, with 200 of
// them, without the query in EarlySwitch::operator().
TEST_F(EarlySwitches, NoneIsPutBehindOneThatHasNotRun) {
  attach_above_with_context();
  fake::pause();
  announce_until_one_lapses();
  EXPECT_LE(switches(), 1);
  fake::resume();
  fake::clear();
  EXPECT_TRUE(eventually([&] {
    if (!shm::is_active(slot().job.load())) sluice_job_announce(base::monotonic_ns() + 2 * kMs);
    return switches() > 1;
  }));
}

// A context may end by a call that passes no hook.
TEST_F(EarlySwitches, NothingIsLaunchedIntoAContextThatIsGone) {
  attach_above_with_context();
  CUcontext own = nullptr;  // or a call here would begin the primary one anew
  ASSERT_EQ(::cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
  void* reset = nullptr;
  ASSERT_EQ(fake::find_entry("cuDevicePrimaryCtxReset", &reset, 12000, 0), CUDA_SUCCESS);
  ASSERT_EQ(reinterpret_cast<CUresult (*)(CUdevice)>(reset)(0), CUDA_SUCCESS);
  fake::clear();
  announce_until_one_lapses();
  // The polling thread may still look back at the launch that has attached this process.
  EXPECT_EQ(entered_by(announcing_thread()), 0);
  EXPECT_FALSE(switched());
}

TEST_F(EarlySwitches, AStreamEndsBesideOneThatBlocks) {
  attach_above_with_context();
  CUstream stream = make_stream();
  fake::stall(Id::cuLaunchKernel);
  // Again if the machine stood still so long that the announcement lapsed before the switch.
  ASSERT_TRUE(eventually([] {
    sluice_job_announce(base::monotonic_ns() + 2 * kMs);
    return eventually([] { return fake::stalled_threads() == 1; }, 20ms);
  }));
  const std::uint64_t begin = base::monotonic_ns();
  EXPECT_EQ(::cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  EXPECT_LT(base::monotonic_ns() - begin, 8000 * kMs);
  fake::unstall();
}

}  // namespace
}  // namespace sluice::intercept::test
