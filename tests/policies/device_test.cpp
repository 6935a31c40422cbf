// device:N: the GPU itself reads the gate when a kernel is about to start.
#include "tests/support/end_to_end_test.hpp"

namespace sluice::test {
namespace {

class DevicePolicy : public SimulatedSessionTest, public testing::WithParamInterface<int> {
 protected:
  [[nodiscard]] std::string policy() const { return "device:" + std::to_string(GetParam()); }
};

// During a job, only the kernels of the current spacing of each stream start, whatever the depth of
// the queue, and no thread waits on the host.
// Seen to fail without put_wait(), and when hold() waits on the host under every policy.
TEST_P(DevicePolicy, NoKernelStartsBeyondTheSpacing) {
  Program& program = start_best_effort(policy());
  program.ask("loop 2 100 250");
  std::vector<Window> jobs;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(eventually([&] {
      return program.launched(0) - program.done(0) > 150 &&
             program.launched(1) - program.done(1) > 150;
    }));
    const auto times = critical_->ask_numbers("job 10 200");
    jobs.push_back({times.at(0), times.at(1)});
    EXPECT_TRUE(flows(program));
  }
  EXPECT_GT(counted(program, shm::Count::kWaited), 0U);
  EXPECT_EQ(counted(program, shm::Count::kHeldNs), 0U) << "a launch was held on the host";
  const pid_t pid = program.pid();
  const pid_t critical = critical_->pid();
  end_all();
  ASSERT_TRUE(end_gpu());
  const GpuLog log = gpu_log();
  for (const Window& job : jobs) {
    const Window sure = log.until_last_kernel(critical, job);
    ASSERT_GT(sure.to_ns, sure.from_ns);
    EXPECT_LE(log.most_starts_of_a_stream(pid, sure), static_cast<std::size_t>(GetParam()));
  }
}

// A captured graph stops in the middle too, and goes on later.
// Seen to fail where graphs got no waits.
TEST_P(DevicePolicy, ACapturedGraphStopsAtItsKernels) {
  constexpr std::size_t kKernels = 50;
  Program& program = start_best_effort(policy());
  program.ask("graph 50 100");
  std::vector<Window> jobs;
  for (int i = 0; i < 8; ++i) {
    const std::uint64_t before = program.done();
    ASSERT_TRUE(eventually([&] { return program.done() > before; }));
    const auto times = critical_->ask_numbers("job 10 200");
    jobs.push_back({times.at(0), times.at(1)});
  }
  ASSERT_TRUE(flows(program));
  EXPECT_EQ(counted(program, shm::Count::kCaptured), kKernels);
  const pid_t pid = program.pid();
  const pid_t critical = critical_->pid();
  end_all();
  ASSERT_TRUE(end_gpu());
  const GpuLog log = gpu_log();
  int stopped_inside = 0;
  for (const Window& job : jobs) {
    const Window sure = log.until_last_kernel(critical, job);
    ASSERT_GT(sure.to_ns, sure.from_ns);
    EXPECT_LE(log.starts(pid, sure), static_cast<std::size_t>(GetParam()));
    for (const auto& [stream, graphs] : log.of(pid, "graph")) {
      for (const LoggedWork& graph : graphs) {
        stopped_inside += graph.start_ns < sure.from_ns && graph.end_ns > sure.to_ns ? 1 : 0;
      }
    }
  }
  EXPECT_GT(stopped_inside, 0) << "no job fell inside a graph, so the test proves nothing";
}

INSTANTIATE_TEST_SUITE_P(N, DevicePolicy, testing::Values(1, 4),
                         [](const auto& param_info) { return std::to_string(param_info.param); });

}  // namespace
}  // namespace sluice::test
