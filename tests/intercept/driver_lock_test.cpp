// A driver call of ours may wait for the GPU, and a gate may hold the GPU. So no lock that another
// thread needs is held during the call. The test is the driver: inside a call, another thread goes
// its way.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <utility>

#include "intercept/driver/process.hpp"
#include "intercept/pacing/pacer.hpp"
#include "tests/intercept/own_client.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;

/// Runs once, on a thread of its own, inside the next call of the driver that may block.
std::function<void()> g_beside;
std::future<void> g_other;
bool g_got_through = false;
CUevent g_recorded = nullptr;

CUresult inside_the_driver() {
  if (const auto beside = std::exchange(g_beside, nullptr)) {
    g_other = std::async(std::launch::async, beside);
    g_got_through = g_other.wait_for(5s) == std::future_status::ready;
  }
  return CUDA_SUCCESS;
}

class DriverLocks : public testing::Test {
 protected:
  DriverLocks() {
    g_got_through = false;
    Driver& driver = g_process.driver;
    driver.cuDeviceGetAttribute = [](int* value, CUdevice_attribute, CUdevice) {
      *value = 1;
      return CUDA_SUCCESS;
    };
    driver.cuCtxGetCurrent = [](CUcontext* context) {
      *context = reinterpret_cast<CUcontext>(1);
      return CUDA_SUCCESS;
    };
    driver.cuCtxPushCurrent_v2 = [](CUcontext) { return CUDA_SUCCESS; };
    driver.cuCtxPopCurrent_v2 = [](CUcontext*) { return CUDA_SUCCESS; };
    driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
    driver.cuMemHostRegister_v2 = [](void*, std::size_t, unsigned) { return inside_the_driver(); };
    driver.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* at, void*, unsigned) {
      *at = 0x1000;
      return CUDA_SUCCESS;
    };
    driver.cuStreamWaitValue64_v2 = [](CUstream, CUdeviceptr, cuuint64_t, unsigned) {
      return CUDA_SUCCESS;
    };
    driver.cuEventQuery = [](CUevent) { return CUDA_SUCCESS; };
    driver.cuEventRecord = [](CUevent event, CUstream) {
      g_recorded = event;
      return inside_the_driver();
    };
    client_->set_obeys(true);
    client_->slot().outranked.store(1);
    stream_.pools = &pools_;
    for (std::uintptr_t i = 1; i <= 16; ++i)
      pools_.plain.give_back(reinterpret_cast<CUevent>(16 * i));
  }
  void mark(RunAhead& ahead, std::uint64_t ns) {
    EXPECT_TRUE(ahead.add(ns, 100, nullptr, pools_.plain));
  }
  /// Takes all of them.
  bool is_spare(CUevent event) {
    bool found = false;
    while (CUevent const spare = pools_.plain.take()) found = found || spare == event;
    return found;
  }
  void launch() {
    Pacer::Place place;
    pacer_.before(Entry::cuLaunchKernel, stream_, nullptr, {}, place);
    pacer_.after(place, stream_, nullptr, CUDA_SUCCESS);
  }
  /// Whether `beside` gets through while `call` is inside the driver.
  template <class Call>
  static bool gets_through(std::function<void()> beside, Call call) {
    g_beside = std::move(beside);
    call();
    EXPECT_TRUE(g_other.valid()) << "the driver was not called";
    g_other.wait();
    return g_got_through;
  }

  OwnClient client_{0, "event:1"};
  GateMemory memory_{*client_, client_->seat().writable};
  Streams streams_;
  Pacer pacer_{*client_, memory_, streams_, idle_worker(), false};
  ContextEvents pools_{idle_worker()};
  Stream stream_;
};

// Each is seen to fail with the lock held.
TEST_F(DriverLocks, AStreamMayEndWhileItsGroupEndIsRecorded) {
  EXPECT_TRUE(gets_through([this] { pacer_.end(stream_, false); }, [this] { launch(); }));
  EXPECT_FALSE(is_spare(g_recorded)) << "the driver is using it";
  EXPECT_EQ(stream_.group_ends[0].event, nullptr) << "an event of a stream that has ended";
}

// Prevents: a group begins although nobody knows yet where the one before the last ends.
TEST_F(DriverLocks, AGroupWaitsForAnEndThatIsBeingRecorded) {
  std::future<void> third;
  EXPECT_TRUE(gets_through(
      [&] {
        launch();
        third = std::async(std::launch::async, [this] { launch(); });
        EXPECT_EQ(third.wait_for(100ms), std::future_status::timeout);
      },
      [this] { launch(); }));
  EXPECT_EQ(third.wait_for(10s), std::future_status::ready);
}

TEST_F(DriverLocks, ALaunchMayLookWhileAMarkIsRecorded) {
  RunAhead ahead;
  mark(ahead, 100);
  EXPECT_TRUE(
      gets_through([&] { static_cast<void>(ahead.must_wait(100)); }, [&] { mark(ahead, 100); }));
  EXPECT_NE(ahead.must_wait(100).event, nullptr);
}

TEST_F(DriverLocks, AStreamMayEndWhileItsMarkIsRecorded) {
  RunAhead ahead;
  mark(ahead, 100);
  EXPECT_TRUE(gets_through(
      [&] {
        ahead.end_stream({&pools_.plain, {}});
      },
      [&] { mark(ahead, 100); }));
  EXPECT_FALSE(is_spare(g_recorded)) << "the driver is using it";
  mark(ahead, 1000);
  EXPECT_EQ(ahead.must_wait(100).event, nullptr) << "a mark of a stream that has ended";
}

TEST_F(DriverLocks, AContextMayEndWhileTheBoardIsRegisteredInIt) {
  bool waits = true;
  EXPECT_TRUE(gets_through([this] { memory_.context_ended({}); },
                           [&] { waits = memory_.wait_for_open(nullptr); }));
  EXPECT_FALSE(waits) << "the registration has ended";
  EXPECT_TRUE(memory_.wait_for_open(nullptr));
}

}  // namespace
}  // namespace sluice::intercept::test
