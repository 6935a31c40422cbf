#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/controller.hpp"
#include "tests/support/gpu_log.hpp"
#include "tests/support/look.hpp"
#include "tests/support/program.hpp"
#include "tests/support/stopwatch.hpp"

namespace sluice::test {

/// Real processes: programs under the preloaded interposer, the controller and a GPU. The GPU is
/// simulated unless SLUICE_TEST_LIBCUDA_DIR names the folder of a real libcuda.so.1. At the end
/// every process is ended in an orderly way.
class EndToEndTest : public ControllerTest {
 protected:
  EndToEndTest() : ControllerTest("e2e") {}
  void SetUp() override;
  void TearDown() override;

  /// Starts the session's controller. An earlier one must have ended.
  void start_controller(const std::vector<std::string>& more = {});
  [[nodiscard]] Process& controller() const { return *controller_; }
  /// Kills the controller and waits for its end.
  void kill_controller();

  /// A program that has launched nothing yet, and so has no slot.
  Program& start_unattached(const ProgramOptions& options);
  /// A program with a slot.
  Program& start(const ProgramOptions& options);
  Program& start_best_effort(const std::string& policy) { return start({0, policy}); }
  /// A best-effort program that launches from the start, even while a job holds it.
  Program& start_looping(const std::string& policy);
  Program& start_critical(int priority = 1) { return start({priority, "device:4"}); }

  /// Ends every process: exit() in every living program, then SIGTERM to the controller.
  void end_all();
  /// Ends the simulated GPU, so that its log is complete. False on a real GPU.
  bool end_gpu();
  [[nodiscard]] GpuLog gpu_log() const { return GpuLog(gpu_log_file_); }
  [[nodiscard]] static bool on_real_gpu();

  /// The board that currently has the session's name.
  [[nodiscard]] Look look() const { return Look(session_); }
  /// The slot of a process, or -1.
  [[nodiscard]] static int slot_of(const Look& look, pid_t pid);
  [[nodiscard]] int slot_of(const Program& program) const;
  [[nodiscard]] std::uint64_t gate_of(const Program& program) const;
  [[nodiscard]] shm::SlotState state_of(const Program& program) const;
  /// A counter, summed over all launch entries.
  [[nodiscard]] std::uint64_t counted(const Program& program, shm::Count count) const;

  /// Whether the program's gate closes, and after that no more of its work ends on the GPU.
  [[nodiscard]] bool becomes_held(const Program& program) const;
  /// Whether the work of a looping program makes progress.
  [[nodiscard]] static bool flows(const Program& program);
  /// Kills a program that has a slot. Returns when the kernel has let go of its mutex, which takes
  /// long on a loaded machine.
  void kill_program(const Program& program) const;
  /// Milliseconds after `act` until the work of the program makes progress again, as its watcher
  /// counts them: a tick that the host lets wait counts for 40 ms. Negative: never.
  [[nodiscard]] double ms_until_flow(const Program& program,
                                     const std::function<void()>& act) const;
  /// Prints a time with its bound, and fails the test if the time exceeds it. The bound is
  /// multiplied by SLUICE_TEST_TIME_FACTOR, for a loaded machine.
  static void expect_within(const std::string& what, double ms, double bound_ms);

  /// Files and GPU processes of the session.
  [[nodiscard]] std::vector<std::string> left_over() const;

 private:
  const std::string gpu_log_file_ = own_session_.log_gpu();
  std::unique_ptr<Process> controller_;
  std::vector<std::unique_ptr<Program>> programs_;
};

/// A test of the simulated GPU's log, with a critical program. Skipped on a real GPU.
class SimulatedSessionTest : public EndToEndTest {
 protected:
  void SetUp() override {
    if (on_real_gpu()) GTEST_SKIP() << "reads the log of the simulated GPU";
    EndToEndTest::SetUp();
    start_controller();
    critical_ = &start_critical();
  }
  void TearDown() override {
    if (!on_real_gpu()) EndToEndTest::TearDown();
  }

  Program* critical_ = nullptr;
};

}  // namespace sluice::test
