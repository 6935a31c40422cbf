// Threads that are cancelled inside a driver call, and memory that runs out: the program goes on.
#include <gtest/gtest.h>

#include "tests/intercept/cancelling.hpp"

namespace sluice::intercept::test {
namespace {

using fake::Id;

class Cancel : public Session {
 protected:
  /// A mark or a ban that outlives its thread would stop the polling.
  void expect_jobs_end() {
    CUstream stream = make_stream();
    fake::pause();
    launch(stream);
    EXPECT_TRUE(eventually([&] { return shm::is_active(slot().job.load()); }));
    fake::resume();
    EXPECT_TRUE(eventually([&] { return !shm::is_active(slot().job.load()); }));
  }
};

// Prevents: std::terminate, because a noexcept function of ours calls the driver for the program.
// On a real driver, cuStreamSynchronize under blocking sync is a cancellation point.
TEST_F(Cancel, AThreadCancelledInsideADriverCallTakesNothingAlong) {
  attach("gate", 5);
  CUstream stream = make_stream();
  cancel_inside(Id::cuStreamSynchronize, [stream] { ::cuStreamSynchronize(stream); });
  cancel_inside(Id::cuCtxSynchronize, [] { ::cuCtxSynchronize(); });
  cancel_inside(Id::cuLaunchKernel, [stream] { launch(stream); });
  cancel_inside(Id::cuMemcpyHtoDAsync_v2,
                [stream] { ::cuMemcpyHtoDAsync_v2(0x1000, nullptr, 1, stream); });
  expect_jobs_end();
}

// Prevents: a program cannot cancel a thread that destroys a stream or a context while the driver
// waits for its work, or nothing of that context is queried ever after. Seen to fail with NoCancel
// around the calls, and with bans that outlive their thread.
TEST_F(Cancel, AThreadCancelledWhileItEndsSomethingTakesNothingAlong) {
  attach("gate", 5);
  CUstream stream = make_stream();
  CUcontext own = nullptr;
  launch(stream);
  cancel_inside(Id::cuStreamDestroy_v2, [stream] { ::cuStreamDestroy_v2(stream); });
  ASSERT_EQ(::cuCtxCreate_v2(&own, 0, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxPopCurrent_v2(&own), CUDA_SUCCESS);
  cancel_inside(Id::cuCtxDestroy_v2, [own] { ::cuCtxDestroy_v2(own); });
  cancel_inside(Id::cuDevicePrimaryCtxReset_v2, [] { ::cuDevicePrimaryCtxReset_v2(0); });
  cancel_inside(Id::cuDevicePrimaryCtxRelease_v2, [] { ::cuDevicePrimaryCtxRelease_v2(0); });
  expect_jobs_end();
}

}  // namespace
}  // namespace sluice::intercept::test
