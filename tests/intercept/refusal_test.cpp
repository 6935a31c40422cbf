// Launches that an order refuses, on the recording driver: what the program gets, what the driver
// sees, and what is counted.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <thread>

#include "sluice/sluice.h"
#include "tests/intercept/broker.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using fake::Id;
using shm::Count;
using shm::MemoryOrder;

constexpr CUresult kRefused = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;

class Refusal : public Session {
 protected:
  /// Attaches under the policy and lets the program know of orders.
  Broker& be_ordered(const std::string& policy) {
    attach(policy);
    broker_.emplace(outrank(), slot());
    EXPECT_EQ(sluice_order(), 0U);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(launch(), CUDA_SUCCESS) << "remembers the stream";
    fake::clear();
    return *broker_;
  }
  std::optional<Broker> broker_;
};

/// Every launch entry, under a policy of each kind.
class EveryEntry : public Refusal, public testing::WithParamInterface<const char*> {};

TEST_P(EveryEntry, IsRefusedWithoutTheDriver) {
  const Broker& broker = be_ordered(GetParam());
  const std::uint64_t counted = launches();
  const std::uint64_t order = broker.give(MemoryOrder::kDrop);
  const CUlaunchConfig config{};
  auto* const exec = reinterpret_cast<CUgraphExec>(0x40);
  EXPECT_EQ(launch(), kRefused);
  EXPECT_EQ(::cuLaunchKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            kRefused);
  EXPECT_EQ(::cuLaunchKernelEx(&config, nullptr, nullptr, nullptr), kRefused);
  EXPECT_EQ(::cuLaunchKernelEx_ptsz(&config, nullptr, nullptr, nullptr), kRefused);
  EXPECT_EQ(::cuLaunchCooperativeKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr), kRefused);
  EXPECT_EQ(::cuLaunchCooperativeKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr),
            kRefused);
  EXPECT_EQ(::cuGraphLaunch(exec, nullptr), kRefused);
  EXPECT_EQ(::cuGraphLaunch_ptsz(exec, nullptr), kRefused);
  for (const fake::Call& call : fake::calls()) {
    EXPECT_EQ(call.name().find("Launch"), std::string_view::npos) << call.name();
  }
  EXPECT_EQ(launches(), counted) << "a launch that the driver never saw counts as one";
  EXPECT_EQ(slot().memory.refused.load(), 8U);
  sluice_order_done(order);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(launches(), counted + 1);
  EXPECT_EQ(slot().memory.done.load(), order >> 8U);
}
INSTANTIATE_TEST_SUITE_P(Policies, EveryEntry,
                         testing::Values("none", "gate", "sync:2", "event:2", "device:2",
                                         "device:200us"));

// Prevents: half a second to a second between an order and its micro-batch's end, in which PyTorch
// tries all other algorithms of cuDNN.
TEST_F(Refusal, ALaunchByCudnnIsDroppedInSilence) {
  using Caller = CUresult(decltype(&::cuLaunchKernel));
  void* const library = dlopen(SLUICE_CUDNN_LOOKALIKE, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  auto* const launch_by_cudnn = reinterpret_cast<Caller*>(dlsym(library, "launch_by_cudnn"));
  ASSERT_NE(launch_by_cudnn, nullptr);
  const Broker& broker = be_ordered("device:200us");
  EXPECT_EQ(launch_by_cudnn(&::cuLaunchKernel), CUDA_SUCCESS);
  EXPECT_EQ(fake::count(Id::cuLaunchKernel), 1U);
  const std::uint64_t order = broker.give(MemoryOrder::kDrop);
  EXPECT_EQ(launch_by_cudnn(&::cuLaunchKernel), CUDA_SUCCESS);
  EXPECT_EQ(fake::count(Id::cuLaunchKernel), 1U) << "it must not run";
  EXPECT_EQ(slot().memory.refused.load(), 1U);
  EXPECT_EQ(launch(), kRefused);
  EXPECT_EQ(sluice_order(), order);
  sluice_order_done(order);
}

// Prevents: a program that was held when its memory was wanted is asked for it after the hold.
TEST_F(Refusal, ALaunchThatIsHeldIsRefused) {
  const Broker& broker = be_ordered("gate");
  critical_->begin();
  std::atomic<int> result{-1};
  std::thread held([&] { result = launch(); });
  EXPECT_TRUE(eventually([&] { return slot().waiters.load() == 1; }));
  broker.give(MemoryOrder::kDrop);
  EXPECT_TRUE(eventually([&] { return result.load() == kRefused; }));
  held.join();
  EXPECT_EQ(fake::count(Id::cuLaunchKernel), 0U);
}

// The same for a launch that waits at a sync point: the driver has that launch.
TEST_F(Refusal, AThreadAtASyncPointGoesOn) {
  const Broker& broker = be_ordered("sync:1");
  fake::pause();
  std::atomic<int> result{-1};
  std::thread waiting([&] { result = launch(); });
  EXPECT_TRUE(eventually([&] { return fake::count(Id::cuStreamQuery) > 0; }));
  broker.give(MemoryOrder::kDrop);
  EXPECT_TRUE(eventually([&] { return result.load() == CUDA_SUCCESS; }));
  waiting.join();
  EXPECT_EQ(launch(), kRefused);
}

// Prevents: a capture breaks, or a graph lacks a kernel, because memory was wanted meanwhile.
TEST_F(Refusal, LaunchesIntoACaptureAreNotRefused) {
  const Broker& broker = be_ordered("device:200us");
  CUstream stream = make_stream();
  ASSERT_EQ(::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  broker.give(MemoryOrder::kDrop);
  EXPECT_EQ(launch(stream), CUDA_SUCCESS);
  CUgraph graph = nullptr;
  EXPECT_EQ(::cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  EXPECT_EQ(fake::nodes(graph), "K");
  EXPECT_EQ(launch(stream), kRefused);
}

// Prevents: a killed server leaves a program whose launches fail.
TEST_F(Refusal, AProgramThatLaunchedNothingIsNotRefusedAfterTheBroker) {
  const Broker& broker = be_ordered("device:200us");
  broker.give(MemoryOrder::kDrop);
  critical_.reset();
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(sluice_order(), 0U);
}

// Prevents: handovers in which the end of the trainer's GPU work cannot be told from the rest.
TEST_F(Refusal, TheProgramsWaitsForItsWorkAreMeasured) {
  const Broker& broker = be_ordered("device:200us");
  const auto calls = {+[] { return ::cuStreamSynchronize(nullptr); },
                      +[] { return ::cuStreamSynchronize_ptsz(nullptr); },
                      +[] { return ::cuCtxSynchronize(); }};
  for (const auto& wait : calls) {
    const std::uint64_t order = broker.give(MemoryOrder::kDrop);
    ASSERT_EQ(launch(), kRefused);
    const std::uint64_t before_ns = base::monotonic_ns();
    EXPECT_EQ(wait(), CUDA_SUCCESS);
    EXPECT_GE(slot().memory.dropped_ns.load(), before_ns);
    EXPECT_GT(slot().memory.drained_ns.load(), 0U);
    sluice_order_done(order);
    EXPECT_EQ(wait(), CUDA_SUCCESS);
    EXPECT_LE(slot().memory.dropped_ns.load(), slot().memory.done_ns.load());
  }
}

TEST_F(Refusal, AStepEndsFirst) {
  const Broker& broker = be_ordered("device:200us");
  sluice_critical(1);
  EXPECT_EQ(slot().memory.critical.load(), 1U);
  broker.give(MemoryOrder::kDrop);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
  sluice_critical(0);
  EXPECT_EQ(launch(), kRefused);
}

// Prevents: an order is seen by launches of one thread only, or only after the watcher's tick.
TEST_F(Refusal, EveryThreadIsRefusedAtOnce) {
  const Broker& broker = be_ordered("device:200us");
  std::atomic<bool> given{false};
  std::atomic<bool> over{false};
  std::atomic<int> late{0};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!over.load()) {
        const bool before = given.load();
        if (launch() == CUDA_SUCCESS && before) ++late;
      }
    });
  }
  std::this_thread::sleep_for(10ms);
  broker.give(MemoryOrder::kDrop);
  given.store(true);
  std::this_thread::sleep_for(10ms);
  over.store(true);
  threads.clear();
  EXPECT_EQ(late.load(), 0);
}

TEST_F(Refusal, WithoutABrokerNothingIsAskedFor) {
  attach("device:200us");
  EXPECT_EQ(sluice_memory_grant(), UINT64_MAX);
  EXPECT_EQ(sluice_order(), 0U);
  EXPECT_EQ(sluice_wait_resume(10'000), 1) << "waits for nobody";
  sluice_critical(1);
  sluice_critical(0);
  sluice_order_done(0x101);
  sluice_memory_fit(7, 9);
  EXPECT_EQ(slot().memory.base.load(), 7U);
  EXPECT_EQ(slot().memory.slope.load(), 9U);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
}

TEST_F(Refusal, ASleeperGoesOnWithTheNextOrder) {
  const Broker& broker = be_ordered("device:200us");
  broker.grant(1000);
  broker.give(MemoryOrder::kSleep);
  EXPECT_EQ(launch(), kRefused);
  const std::uint64_t order = sluice_order();
  EXPECT_EQ(order & 0xffU, SLUICE_ORDER_SLEEP);
  EXPECT_EQ(sluice_memory_grant(), 1000U);
  sluice_order_done(order);
  EXPECT_EQ(sluice_wait_resume(30), 0);
  broker.give(MemoryOrder::kNone);
  EXPECT_EQ(sluice_wait_resume(10'000), 1);
  EXPECT_EQ(launch(), CUDA_SUCCESS);
}

/// A client that a broker drains, under a policy that holds on the host.
class Draining : public Refusal {
 protected:
  bool closed() { return slot().gate.load() != 0; }
};

// Prevents: a program frees nothing until the job ends that waits for its memory.
TEST_F(Draining, OpensTheGateAndClosesItAgain) {
  const Broker& broker = be_ordered("gate");
  critical_->begin();
  EXPECT_TRUE(closed());
  shm::begin_drain(board(), broker.self(), broker.client());
  EXPECT_FALSE(closed());
  EXPECT_EQ(launch(), CUDA_SUCCESS) << "is held";
  std::this_thread::sleep_for(60ms);
  EXPECT_FALSE(closed()) << "a tick of the watcher closed it";
  critical_->end();
  critical_->begin();
  EXPECT_FALSE(closed()) << "the next job closed it";
  shm::end_drain(board(), broker.self(), broker.client());
  EXPECT_TRUE(closed());
  critical_->end();
}

TEST_F(Draining, EndsWhenTheOrderIsObeyed) {
  const Broker& broker = be_ordered("gate");
  critical_->begin();
  shm::begin_drain(board(), broker.self(), broker.client());
  broker.give(MemoryOrder::kDrop);
  EXPECT_EQ(launch(), kRefused);
  EXPECT_FALSE(closed());
  sluice_order_done(sluice_order());
  EXPECT_TRUE(closed());
  EXPECT_EQ(slot().memory.draining.load(), 0U);
  critical_->end();
}

// Prevents: a client is protected from nobody after its broker was killed.
TEST_F(Draining, EndsWithTheBroker) {
  const Broker& broker = be_ordered("gate");
  Critical other(session_, 100);
  other.begin();
  shm::begin_drain(board(), broker.self(), broker.client());
  EXPECT_FALSE(closed());
  critical_.reset();
  EXPECT_TRUE(eventually([&] { return closed(); }));
  EXPECT_EQ(slot().memory.draining.load(), 0U);
  other.end();
}

// Prevents: long launches of a drained client wait for the slack before a job.
TEST_F(Draining, LimitsNoSlack) {
  const Broker& broker = be_ordered("device:200us");
  slot().slack_until_ns.store(~std::uint64_t{0});
  slot().slack_ns.store(5);
  shm::begin_drain(board(), broker.self(), broker.client());
  EXPECT_EQ(slot().slack_ns.load(), shm::kUnlimitedSlack);
}

}  // namespace
}  // namespace sluice::intercept::test
