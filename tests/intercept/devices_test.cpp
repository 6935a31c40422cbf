// A process with two devices: events on one device must not cost the other its jobs or its waits.
#include <gtest/gtest.h>

#include <initializer_list>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "shm/target.hpp"
#include "sluice/sluice.h"
#include "tests/intercept/building.hpp"

namespace sluice::intercept::test {
namespace {

using fake::Id;
using shm::Count;

class Devices : public Building {
 protected:
  /// Attaches on device 0, then on device 1, whose primary context stays current.
  void attach_both(const std::string& policy, int priority) {
    attach(policy, priority);
    attach_second();
  }
  void attach_second() {
    ASSERT_EQ(::cuDevicePrimaryCtxRetain(&first_, 0), CUDA_SUCCESS);
    ASSERT_EQ(::cuDevicePrimaryCtxRetain(&second_, 1), CUDA_SUCCESS);
    ASSERT_EQ(::cuCtxSetCurrent(second_), CUDA_SUCCESS);
    on_second_ = make_stream();
    launch(on_second_);
    for (int i = 0; i < shm::kSlots; ++i) {
      shm::Slot& each = board().slots[static_cast<std::size_t>(i)];
      const bool live = shm::SlotInfo::unpack(each.info.load()).state == shm::SlotState::kLive;
      const bool mine = each.pid.load() == static_cast<std::uint32_t>(getpid());
      if (live && mine && &each != &slot()) other_slot_ = &each;
    }
    ASSERT_NE(other_slot_, nullptr) << "no slot of its own for the second device";
  }
  /// A chain of kernels, each in its context, as an executable.
  static CUgraphExec chain_in(std::initializer_list<CUcontext> contexts) {
    CUgraph graph = new_graph();
    Nodes before;
    for (const CUcontext context : contexts) before = {add_kernel_in(context, graph, before)};
    const CUgraphExec exec = instantiate(graph);
    const std::vector<std::uint64_t> gates = fake::gates(exec);
    EXPECT_EQ(update(exec, graph), CUDA_SUCCESS);
    EXPECT_EQ(fake::gates(exec), gates);
    return exec;
  }
  static CUgraphNode add_kernel_in(CUcontext context, CUgraph graph, const Nodes& before) {
    CUDA_KERNEL_NODE_PARAMS params{};
    params.ctx = context;
    CUgraphNode node = nullptr;
    EXPECT_EQ(::cuGraphAddKernelNode_v2(&node, graph, before.data(), before.size(), &params),
              CUDA_SUCCESS);
    return node;
  }
  static bool active(const shm::Slot& of) { return shm::is_active(of.job.load()); }

  CUcontext first_ = nullptr;
  CUcontext second_ = nullptr;
  CUstream on_second_ = nullptr;
  shm::Slot* other_slot_ = nullptr;
};

// Prevents: a job that never ends, because a synchronising call is assigned to the wrong device.
TEST_F(Devices, ASynchroniseEndsTheJobOfItsDevice) {
  attach_both("gate", 0);  // jobs of priority 0 are not polled
  ASSERT_TRUE(active(*other_slot_));
  ASSERT_EQ(::cuStreamSynchronize(on_second_), CUDA_SUCCESS);
  EXPECT_FALSE(active(*other_slot_));
  launch(on_second_);
  ASSERT_TRUE(active(*other_slot_));
  ASSERT_EQ(::cuCtxSetCurrent(first_), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_TRUE(active(*other_slot_)) << "the other device was synchronised";
  ASSERT_EQ(::cuCtxSetCurrent(second_), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_FALSE(active(*other_slot_));
}

// Prevents: a job that holds nobody on the device that the program comes to later.
TEST_F(Devices, AJobIsOpenOnADeviceThatComesLater) {
  attach("gate", 5);
  const std::uint64_t job = sluice_job_begin(0);
  attach_second();
  EXPECT_TRUE(active(*other_slot_));
  sluice_job_end(job);
  EXPECT_FALSE(active(*other_slot_));
  EXPECT_FALSE(active(slot()));
}

// Prevents: a server on two devices that holds best effort on the one that is idle, or that opens
// the gates of one device when a job of the other ends.
TEST_F(Devices, AJobOfADeviceIsOpenThereOnly) {
  attach_both("gate", 5);
  sluice_job_end(sluice_job_begin(0));  // jobs are explicit from now on
  const std::uint64_t second = sluice_job_begin_on(1, 0);
  EXPECT_TRUE(active(*other_slot_));
  EXPECT_FALSE(active(slot()));
  const std::uint64_t first = sluice_job_begin_on(0, 0);
  EXPECT_TRUE(active(slot()));
  EXPECT_NE(first, second);
  sluice_job_end(second);
  EXPECT_FALSE(active(*other_slot_));
  EXPECT_TRUE(active(slot()));
  sluice_job_end(second);
  sluice_job_end(first);
  EXPECT_FALSE(active(slot()));
}

// Prevents: a job on all devices that ends with one of a single device, or the other way round.
TEST_F(Devices, JobsOfOneAndOfAllDevicesOverlap) {
  attach_both("gate", 5);
  const std::uint64_t all = sluice_job_begin(0);
  const std::uint64_t one = sluice_job_begin_on(1, 0);
  sluice_job_end(all);
  EXPECT_FALSE(active(slot()));
  EXPECT_TRUE(active(*other_slot_));
  const std::uint64_t again = sluice_job_begin(0);
  sluice_job_end(one);
  EXPECT_TRUE(active(slot()));
  EXPECT_TRUE(active(*other_slot_));
  sluice_job_end(again);
  EXPECT_FALSE(active(*other_slot_));
}

// Prevents: a job of a device that holds nobody there because it began before the program came
// there.
TEST_F(Devices, AJobOfADeviceIsOpenWhenTheProgramComesThere) {
  attach("gate", 5);
  const std::uint64_t job = sluice_job_begin_on(1, 0);
  const std::uint64_t elsewhere = sluice_job_begin_on(7, 0);
  EXPECT_FALSE(active(slot()));
  attach_second();
  EXPECT_TRUE(active(*other_slot_));
  sluice_job_end(elsewhere);
  EXPECT_TRUE(active(*other_slot_));
  sluice_job_end(job);
  EXPECT_FALSE(active(*other_slot_));
  EXPECT_EQ(sluice_job_begin_on(-1, 0), 0U);
  EXPECT_EQ(sluice_job_begin_on(1000, 0), 0U);
  sluice_job_end(~std::uint64_t{0});
}

// Prevents: an announcement for one device that closes gates on another, or that nobody looks at.
TEST_F(Devices, AnAnnouncementOfADeviceClosesTheGatesThere) {
  attach_both("gate", 5);
  sluice_job_end(sluice_job_begin(0));
  const Critical below_first(session_, 0, 1);
  const Critical below_second(session_, 0, 2);
  const auto closed = [&](const Critical& client) {
    return board().slots[static_cast<std::size_t>(client.slot())].gate.load() != 0;
  };
  std::uint64_t announced = 0;
  EXPECT_TRUE(eventually([&] {  // again if the machine stood still until the job lapsed
    sluice_job_cancel(announced);
    announced = sluice_job_announce_on(1, base::monotonic_ns() + 20'000'000);
    return eventually([&] { return closed(below_second); }, std::chrono::milliseconds(30));
  }));
  EXPECT_FALSE(closed(below_first));
  const std::uint64_t job = sluice_job_begin_on(1, announced);
  EXPECT_TRUE(closed(below_second));
  sluice_job_end(job);
  EXPECT_FALSE(closed(below_second));
  announced = sluice_job_announce_on(1, base::monotonic_ns() + 60'000'000'000);
  EXPECT_NE(announced, 0U);
  sluice_job_cancel(announced);
}

// Prevents: a job on all devices that lower clients waive after 0.1 s, because the gates had been
// closed for a job of one device that never came.
TEST_F(Devices, AJobIsNoAnnouncementBecauseTheGatesWereClosedForOne) {
  attach_both("gate", 5);
  sluice_job_end(sluice_job_begin(0));
  const Critical below(session_, 0, 2);
  const auto until = [&] { return other_slot_->early_hold_until_ns.load(); };
  std::uint64_t announced = 0;
  EXPECT_TRUE(eventually([&] {  // again if the machine stood still until the job lapsed
    sluice_job_cancel(announced);
    announced = sluice_job_announce_on(1, base::monotonic_ns() + 200'000'000);
    return eventually([&] { return until() != 0; }, std::chrono::milliseconds(250));
  }));
  const std::uint64_t job = sluice_job_begin(0);
  EXPECT_TRUE(active(*other_slot_));
  EXPECT_EQ(until(), 0U) << "a job has begun";
  sluice_job_cancel(announced);
  EXPECT_TRUE(active(*other_slot_));
  EXPECT_EQ(until(), 0U);
  sluice_job_end(job);
  EXPECT_FALSE(active(*other_slot_));
}

// Prevents: a query of a stream of one device, which the driver does not answer while the queue of
// that stream is full, keeps the jobs of all devices open. Seen to fail with one polling thread.
TEST_F(Devices, AQueryThatBlocksOnOneDelaysNoOther) {
  attach_both("gate", 5);
  fake::pause();
  ASSERT_EQ(::cuCtxSetCurrent(first_), CUDA_SUCCESS);
  CUstream stuck = make_stream();
  launch(stuck);
  fake::stall_stream(stuck);
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() != 0; }));
  ASSERT_EQ(::cuCtxSetCurrent(second_), CUDA_SUCCESS);
  for (int i = 0; i < 5; ++i) {
    launch(on_second_);
    ASSERT_TRUE(active(*other_slot_));
    fake::finish(on_second_, 1);
    EXPECT_TRUE(eventually([&] { return !active(*other_slot_); }));
  }
  EXPECT_TRUE(active(slot()));
  fake::unstall();
  fake::finish_all();
  EXPECT_TRUE(eventually([&] { return !active(slot()); }));
}

// The same of two streams of one device. Seen to fail without Worker::relieve().
TEST_F(Devices, AQueryThatBlocksKeepsNoOtherStreamsJobOpen) {
  attach("gate", 5);
  board().max_hold_ns.store(300 * kMs);
  fake::pause();
  CUstream works = make_stream();
  std::array<CUstream, 3> stuck{};
  for (CUstream& each : stuck) {
    each = make_stream();
    launch(each);
    fake::stall_stream(each);
  }
  ASSERT_TRUE(eventually([] { return fake::stalled_threads() != 0; }));
  for (int i = 0; i < 5; ++i) {
    launch(works);
    ASSERT_TRUE(active(slot()));
    fake::finish(works, 1);
    EXPECT_TRUE(eventually([&] { return !active(slot()); }));
  }
  fake::unstall();
  fake::finish_all();
  launch(works);
  EXPECT_TRUE(eventually([&] { return !active(slot()); }));
}

// Prevents: memory of one device that counts for another.
TEST_F(Devices, WhatIsHeldIsThatOfTheDevice) {
  attach_both("gate", 5);
  CUdeviceptr memory = 0;
  ASSERT_EQ(::cuMemAlloc_v2(&memory, 1 << 20), CUDA_SUCCESS);  // the second context is current
  EXPECT_EQ(sluice_memory_held_on(1), sluice_memory_held());
  EXPECT_GE(sluice_memory_held_on(1), std::uint64_t{1} << 20);
  ASSERT_EQ(::cuCtxSetCurrent(first_), CUDA_SUCCESS);
  EXPECT_EQ(sluice_memory_held_on(0), sluice_memory_held());
  EXPECT_LT(sluice_memory_held_on(0), sluice_memory_held_on(1));
  EXPECT_EQ(sluice_memory_held_on(5), 0U);
}

// Prevents: the default stream of one device is taken for that of the other.
TEST_F(Devices, ADefaultStreamIsThatOfTheCurrentContext) {
  attach_both("gate", 0);
  const std::uint64_t on_first = counted(Count::kGated);
  ASSERT_EQ(::cuCtxSetCurrent(first_), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) launch();
  ASSERT_EQ(::cuCtxSetCurrent(second_), CUDA_SUCCESS);
  for (int i = 0; i < 2; ++i) launch();
  ASSERT_EQ(::cuCtxPushCurrent_v2(first_), CUDA_SUCCESS);
  launch();
  CUcontext popped = nullptr;
  ASSERT_EQ(::cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
  launch();
  const auto total = [](const shm::Slot& of) { return of.entries[0].value(Count::kGated); };
  EXPECT_EQ(total(slot()) + total(*other_slot_), counted(Count::kGated) + 4);
  EXPECT_EQ(total(*other_slot_), 4U) << "one in attach_both(), and three";
  EXPECT_EQ(counted(Count::kGated), on_first + 4);
}

// Prevents: one registration serves both devices and ends with the context that made it.
TEST_F(Devices, AContextThatEndsTakesNoWaitsOfTheOtherDevice) {
  attach_both("device:1", 0);
  const Critical above_first(session_, 200, 1);
  const Critical above_second(session_, 200, 2);
  ASSERT_TRUE(
      eventually([&] { return slot().outranked.load() + other_slot_->outranked.load() == 2; }));
  ASSERT_EQ(::cuCtxSetCurrent(first_), CUDA_SUCCESS);
  launch();
  ASSERT_EQ(::cuCtxSetCurrent(second_), CUDA_SUCCESS);
  launch(on_second_);
  ASSERT_EQ(::cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  fake::clear();
  launch(on_second_);
  EXPECT_EQ(fake::count(Id::cuStreamWaitValue64_v2), 1U) << "refused and asked for again";
  EXPECT_EQ(fake::count(Id::cuMemHostRegister_v2), 0U);
  EXPECT_EQ(other_slot_->entries[0].value(Count::kBypassRefusedWait), 0U);
}

// Prevents: the kernels of one device stop at the gate of another, and run through their own.
TEST_F(Devices, AWaitInAGraphReadsTheGateOfItsKernelsDevice) {
  using Gates = std::vector<std::uint64_t>;
  attach_both("device:1", 0);
  const std::uint64_t on_second = fake::gates(chain_in({second_, second_}))[1];
  ASSERT_EQ(::cuCtxSetCurrent(first_), CUDA_SUCCESS);
  const std::uint64_t on_first = fake::gates(chain_in({first_, first_}))[1];
  ASSERT_NE(on_first, 0U);
  ASSERT_NE(on_second, 0U);
  ASSERT_NE(on_first, on_second);
  const CUgraphExec both = chain_in({first_, second_, first_, second_, nullptr});
  EXPECT_EQ(fake::gates(both), (Gates{0, 0, on_first, on_second, on_first}));
  ASSERT_EQ(::cuCtxSetCurrent(second_), CUDA_SUCCESS);
  EXPECT_EQ(fake::gates(chain_in({first_, first_})), (Gates{0, on_first}));
}

// Prevents: its kernels stop at the gate of another device.
TEST_F(Devices, AKernelOfADeviceWithoutAClientGetsNoWait) {
  attach("device:1", 0);
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&first_, 0), CUDA_SUCCESS);
  ASSERT_EQ(::cuDevicePrimaryCtxRetain(&second_, 1), CUDA_SUCCESS);
  const std::vector<std::uint64_t> gates =
      fake::gates(chain_in({first_, second_, second_, first_}));
  EXPECT_EQ(gates[1] + gates[2], 0U);
  EXPECT_NE(gates[3], 0U);
}

// Prevents: launches without a wait are counted as gated, and nothing reports them.
TEST_F(Devices, ARefusedWaitIsCountedAsSuchAndAskedForAgain) {
  attach("device:4");
  outrank();
  CUstream stream = make_stream();
  launch(stream);
  catch_errors();
  fake::answer(Id::cuStreamWaitValue64_v2, CUDA_ERROR_INVALID_VALUE);
  const std::uint64_t gated = counted(Count::kGated);
  for (int i = 0; i < 8; ++i) launch(stream);  // three share the spacing of the earlier wait
  EXPECT_EQ(counted(Count::kBypassRefusedWait), 5U);
  EXPECT_EQ(counted(Count::kGated), gated + 3);
  fake::answer(Id::cuStreamWaitValue64_v2, CUDA_SUCCESS);
  launch(stream);
  EXPECT_EQ(counted(Count::kBypassRefusedWait), 5U);
  EXPECT_EQ(counted(Count::kGated), gated + 4);
  const std::string said = errors();
  EXPECT_NE(said.find("refuses a wait"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
}

// Prevents: launches count for the device on which the thread was before. Its context has the
// handle of one that the thread had, and has ended.
TEST_F(Devices, AContextMayHaveTheHandleOfOneThatEnded) {
  attach_both("gate", 0);
  CUcontext ended = nullptr;
  ASSERT_EQ(::cuCtxCreate_v2(&ended, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxSetCurrent(ended), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxDestroy_v2(ended), CUDA_SUCCESS);
  launch();  // on the first device
  CUcontext made = nullptr;
  std::thread([&made] { ::cuCtxCreate_v2(&made, 0, 1); }).join();
  ASSERT_EQ(made, ended);
  ASSERT_EQ(::cuCtxSetCurrent(made), CUDA_SUCCESS);
  const std::uint64_t before = other_slot_->entries[0].launches();
  launch();
  EXPECT_EQ(other_slot_->entries[0].launches(), before + 1);
}

// Prevents: launches into a capture are held or get waits, because the thread has ended the capture
// of its default stream on another device, which has the same name.
TEST_F(Devices, AThreadCapturesItsDefaultStreamsOnBoth) {
  attach_both("gate", 0);
  const auto begin = [] {
    return ::cuStreamBeginCapture_v2(CU_STREAM_PER_THREAD, CU_STREAM_CAPTURE_MODE_RELAXED);
  };
  CUgraph graph = nullptr;
  ASSERT_EQ(begin(), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxSetCurrent(first_), CUDA_SUCCESS);
  ASSERT_EQ(begin(), CUDA_SUCCESS);
  ASSERT_EQ(::cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph), CUDA_SUCCESS);
  ASSERT_EQ(::cuCtxSetCurrent(second_), CUDA_SUCCESS);
  launch(CU_STREAM_PER_THREAD);
  ASSERT_EQ(::cuStreamEndCapture(CU_STREAM_PER_THREAD, &graph), CUDA_SUCCESS);
  EXPECT_EQ(fake::nodes(graph), "K");
  EXPECT_EQ(other_slot_->entries[0].value(Count::kCaptured), 1U);
}

// Prevents: gates that stay open for an announced job, because a job with open gates runs when they
// should close; and an open time that counts from the start of the machine.
TEST_F(Devices, AnAnnouncedJobClosesTheGatesOfAnOpenJob) {
  attach_both("gate", 5);
  ::cuStreamSynchronize(on_second_);
  ASSERT_EQ(::cuCtxSetCurrent(first_), CUDA_SUCCESS);
  ::cuCtxSynchronize();
  Critical low(session_, 0);
  const std::uint64_t target = shm::parse_target("p99=60s")->pack();
  slot().requested_target.store(target);  // of the first device only: sluice set slot:N
  ASSERT_TRUE(eventually([&] { return slot().target.load() == target; }));
  for (int i = 0; i < 41; ++i) {
    launch();
    ::cuCtxSynchronize();
  }
  fake::answer(Id::cuStreamQuery, CUDA_ERROR_NOT_READY);  // this job goes on
  launch();
  ASSERT_TRUE(shm::is_active(slot().open_job.load()));
  const auto closed = [&] {
    return board().slots[static_cast<std::size_t>(low.slot())].gate.load() != 0;
  };
  std::uint64_t announced = 0;
  // Again if the machine stood still until the job lapsed.
  EXPECT_TRUE(eventually([&] {
    sluice_job_cancel(announced);
    announced = sluice_job_announce(base::monotonic_ns() + 30'000'000);
    return eventually(closed, std::chrono::milliseconds(45));
  }));
  sluice_job_cancel(announced);
  EXPECT_FALSE(closed());
  EXPECT_FALSE(shm::is_active(slot().open_job.load()));
  EXPECT_LT(slot().open_ns.load(), 60'000'000'000U);
}

}  // namespace
}  // namespace sluice::intercept::test
