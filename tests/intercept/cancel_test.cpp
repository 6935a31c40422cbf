// Threads that are cancelled inside a driver call, and memory that runs out: the program goes on.
#include <gtest/gtest.h>
#include <pthread.h>

#include <thread>

#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {
namespace {

using fake::Id;

class Cancel : public Session {
 protected:
  /// Cancels a thread that is inside `call`, and waits for its end.
  template <class Call>
  static void cancel_inside(Id id, Call call) {
    fake::stall(id);
    std::thread inside(call);
    EXPECT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
    EXPECT_EQ(pthread_cancel(inside.native_handle()), 0);
    inside.join();
    fake::unstall();
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
  // Jobs are still detected: the mark of the cancelled thread must not stop the polling.
  fake::pause();
  launch(stream);
  EXPECT_TRUE(eventually([&] { return shm::is_active(slot().job.load()); }));
  fake::resume();
  EXPECT_TRUE(eventually([&] { return !shm::is_active(slot().job.load()); }));
}

// The same for the other kinds of hooks.
TEST_F(Cancel, AThreadCancelledWhileItEndsAStreamTakesNothingAlong) {
  attach("device:1");
  outrank();
  CUstream stream = make_stream();
  launch(stream);
  fake::stall(Id::cuStreamDestroy_v2);
  std::thread inside([stream] { ::cuStreamDestroy_v2(stream); });
  EXPECT_TRUE(eventually([] { return fake::stalled_threads() == 1; }));
  EXPECT_EQ(pthread_cancel(inside.native_handle()), 0);
  fake::unstall();
  inside.join();
  EXPECT_EQ(launch(make_stream()), CUDA_SUCCESS);
}

}  // namespace
}  // namespace sluice::intercept::test
