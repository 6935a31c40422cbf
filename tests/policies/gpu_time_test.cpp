// The estimate of a client's GPU time (Slot::gpu_ns) against the log of the simulated GPU.
#include <chrono>
#include <thread>
#include <utility>

#include "tests/support/end_to_end_test.hpp"

namespace sluice::test {
namespace {

using namespace std::chrono_literals;

class GpuTimeEstimate : public EndToEndTest {
 protected:
  void SetUp() override {
    if (on_real_gpu()) GTEST_SKIP() << "reads the log of the simulated GPU";
    EndToEndTest::SetUp();
    start_controller();
  }
  void TearDown() override {
    if (!on_real_gpu()) EndToEndTest::TearDown();
  }

  /// Ends the session, and compares. Each kernel takes `launch_ns` of GPU time if that is not 0;
  /// else the log's times count, which contain the time slices of others.
  void expect_right(Program& program, std::uint64_t launch_ns = 0) {
    program.ask("halt");
    std::uint64_t last_ns = 0;
    EXPECT_TRUE(eventually([&] {
      const std::uint64_t before_ns = std::exchange(last_ns, gpu_ns(program));
      std::this_thread::sleep_for(300ms);
      return last_ns == before_ns;
    }));
    const double estimate = static_cast<double>(last_ns);
    const pid_t pid = program.pid();
    end_all();
    ASSERT_TRUE(end_gpu());
    double truth = 0;
    for (const auto& [stream, works] : gpu_log().of(pid)) {
      for (const LoggedWork& work : works) {
        truth +=
            static_cast<double>(launch_ns != 0 ? launch_ns * kScale : work.end_ns - work.start_ns);
      }
    }
    std::printf("estimate %.1f ms, truth %.1f ms\n", estimate / 1e6, truth / 1e6);
    EXPECT_NEAR(estimate / truth, 1, 0.1);
  }
  static constexpr std::uint64_t kScale = 10;
  [[nodiscard]] std::uint64_t gpu_ns(const Program& program) const {
    const Look seen = look();
    return seen.board().slots[static_cast<std::size_t>(slot_of(seen, program.pid()))].gpu_ns.load();
  }
};

TEST_F(GpuTimeEstimate, OfEqualKernels) {
  Program& program = start_best_effort("device:200us");
  program.ask("loop 1 100 20");
  std::this_thread::sleep_for(3s);
  expect_right(program);
}

TEST_F(GpuTimeEstimate, OfAMixOfKernels) {
  Program& program = start_best_effort("gate");
  program.ask("mix 10 7");
  std::this_thread::sleep_for(8s);
  expect_right(program);
}

TEST_F(GpuTimeEstimate, OfGraphs) {
  Program& program = start_best_effort("none");
  program.ask("graph 20 50");
  std::this_thread::sleep_for(2s);
  expect_right(program);
}

TEST_F(GpuTimeEstimate, OfAGraphNowAndThen) {
  Program& program = start_critical();
  program.ask("graph 50 100 100000");
  std::this_thread::sleep_for(3s);
  expect_right(program);
}

TEST_F(GpuTimeEstimate, OfAnOutrankedClient) {
  Program& critical = start_critical();
  Program& program = start_best_effort("device:200us");
  program.ask("loop 1 100 20");
  for (int i = 0; i < 100; ++i) {
    critical.ask("job 10 200");
    std::this_thread::sleep_for(20ms);
  }
  expect_right(program, 100'000);
}

TEST_F(GpuTimeEstimate, OfACriticalClient) {
  Program& critical = start_critical();
  Program& program = start_best_effort("device:200us");
  program.ask("loop 1 100 20");
  for (int i = 0; i < 200; ++i) {
    critical.ask("job 20 200");
    std::this_thread::sleep_for(5ms);
  }
  program.ask("halt");
  expect_right(critical, 200'000);
}

// Prevents: time at the closed gate taken for GPU time.
TEST_F(GpuTimeEstimate, OfAHeldClient) {
  Program& critical = start_critical();
  Program& program = start_best_effort("device:4");
  program.ask("loop 1 100 20");
  std::this_thread::sleep_for(500ms);
  for (int i = 0; i < 5; ++i) {
    const auto begun = critical.ask_numbers("begin");
    std::this_thread::sleep_for(300ms);
    critical.ask("end " + std::to_string(begun.at(0)));
    std::this_thread::sleep_for(50ms);
  }
  expect_right(program, 100'000);
}

}  // namespace
}  // namespace sluice::test
