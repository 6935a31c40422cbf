// The policies that act in the launching thread: none, gate, sync:N, event:N.
#include <algorithm>

#include "tests/support/end_to_end_test.hpp"

namespace sluice::test {
namespace {

class HostPolicies : public SimulatedSessionTest {
 protected:
  /// The number of launches of a lane that returned within the window.
  static std::size_t returns(const Program& program, std::size_t lane, const Window& window) {
    const Lane& of = program.progress().lanes[lane];
    const std::uint64_t count = std::min<std::uint64_t>(of.launched.load(), kTimes);
    return static_cast<std::size_t>(
        std::count_if(of.returned_ns.begin(), of.returned_ns.begin() + static_cast<long>(count),
                      [&](const auto& time) { return window.holds(time.load()); }));
  }

  /// The maximum number of lane 0's launches that had returned but not ended on the GPU.
  static std::size_t most_outstanding(const Program& program, const GpuLog& log);
};

std::size_t HostPolicies::most_outstanding(const Program& program, const GpuLog& log) {
  std::vector<LoggedWork> kernels;  // of the lane's stream, which has the most kernels
  for (const auto& [stream, of_stream] : log.of(program.pid())) {
    if (of_stream.size() > kernels.size()) kernels = of_stream;
  }
  const Lane& lane = program.progress().lanes[0];
  const std::uint64_t launched = lane.launched.load();
  EXPECT_EQ(kernels.size(), launched) << "the log is not complete";
  EXPECT_LE(launched, kTimes);
  std::size_t ended = 0;
  std::size_t most = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(launched, kTimes); ++i) {
    const std::uint64_t returned = lane.returned_ns[i].load();
    while (ended < kernels.size() && kernels[ended].end_ns <= returned) ++ended;
    most = std::max(most, i + 1 - std::min(ended, i + 1));
  }
  return most;
}

// none: no launch is held, even if the gate is closed.
// Seen to fail when hold() waits under every policy.
TEST_F(HostPolicies, NoneHoldsNothing) {
  Program& program = start_best_effort("none");
  program.ask("loop 2 100 32");
  critical_->ask("begin");
  // Far more launches than were queued when the gate closed.
  EXPECT_TRUE(
      eventually([&, before = program.launched()] { return program.launched() > before + 100; }));
  EXPECT_EQ(counted(program, shm::Count::kWaited), 0U);
  EXPECT_EQ(counted(program, shm::Count::kGated), 0U);
  const std::uint64_t launched = program.launched();  // first: it launches on
  EXPECT_GE(counted(program, shm::Count::kBypassPolicyNone), launched);
  critical_->ask("end 1");
}

// gate: during a job at most one launch per launching thread reaches the driver, and queued work
// continues.
// Seen to fail when hold() returns at once: 2500 launches in the job.
TEST_F(HostPolicies, GateHoldsLaunchesAndNotTheQueue) {
  constexpr std::size_t kThreads = 2;
  Program& program = start_best_effort("gate");
  program.ask("loop 2 200 32");
  const auto queued = [&] {
    return program.launched(0) - program.done(0) + program.launched(1) - program.done(1);
  };
  ASSERT_TRUE(eventually([&] { return queued() >= 40; }));
  Window job;
  job.from_ns = critical_->ask_numbers("begin").at(1);
  const std::uint64_t queued_at_begin = queued();
  ASSERT_GT(queued_at_begin, 8U) << "no queue, so the test proves nothing";
  EXPECT_TRUE(eventually([&] {
    return queued() == 0 && look().slot(slot_of(program)).waiters.load() == kThreads;
  })) << "queued work does not continue, or a thread is not held";
  job.to_ns = critical_->ask_numbers("end 1").at(0);
  EXPECT_TRUE(flows(program));
  EXPECT_LE(returns(program, 0, job), 1U);
  EXPECT_LE(returns(program, 1, job), 1U);
  const pid_t pid = program.pid();
  end_all();
  ASSERT_TRUE(end_gpu());
  EXPECT_GE(gpu_log().starts(pid, job), queued_at_begin - kThreads);
}

class Paced : public HostPolicies {
 protected:
  /// Runs at least 200 launches of 100 us with jobs in between. Returns the maximum outstanding.
  std::size_t most_outstanding_under(const std::string& policy, std::size_t most_in_a_job) {
    Program& program = start_best_effort(policy);
    program.ask("loop 1 100 0");
    std::vector<Window> jobs;
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(eventually(
          [&, before = program.launched()] { return program.launched() > before + 40; }));
      const auto times = critical_->ask_numbers("job 5 200");
      jobs.push_back({times.at(0), times.at(1)});
    }
    program.ask("halt");
    EXPECT_TRUE(eventually([&] { return program.done() == program.launched(); }));
    const pid_t critical = critical_->pid();
    end_all();
    end_gpu();
    const GpuLog log = gpu_log();
    for (const Window& job : jobs) {
      const Window sure = log.until_last_kernel(critical, job);
      EXPECT_GT(sure.to_ns, sure.from_ns);
      EXPECT_LE(log.starts(program.pid(), sure), most_in_a_job);
    }
    return most_outstanding(program, log);
  }
};

// sync:N: at most N launches are outstanding, so at most N are in front of a critical job.
// Seen to fail without the wait in Pacer::after(): 511 outstanding.
TEST_F(Paced, SyncBoundsTheQueueByN) {
  const std::size_t most = most_outstanding_under("sync:4", 4);
  EXPECT_LE(most, 4U);
  EXPECT_GE(most, 2U) << "synchronised after every launch";
}

// event:N: at most 2N launches are outstanding, and more than one group is.
// Seen to fail without begin_group(): 511 outstanding.
TEST_F(Paced, EventBoundsTheQueueByTwoN) {
  const std::size_t most = most_outstanding_under("event:4", 8);
  EXPECT_LE(most, 8U);
  EXPECT_GT(most, 4U) << "waits for the previous group instead of the one before it";
}

// A client that no other client outranks is not slowed at all.
// Seen to fail without `outranked` in must_pace().
TEST_F(HostPolicies, NobodyWaitsWhileNobodyOutranks) {
  critical_->tell("exit");
  critical_->wait();
  Program& program = start_best_effort("sync:1");
  ASSERT_TRUE(eventually([&] { return look().slot(slot_of(program)).outranked.load() == 0; }));
  program.ask("loop 1 100 0");
  EXPECT_TRUE(eventually([&] { return program.launched() > program.done() + 100; }))
      << "waits after each launch although nobody outranks it";
}

}  // namespace
}  // namespace sluice::test
