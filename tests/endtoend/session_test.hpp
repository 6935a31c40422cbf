#pragma once
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu_log.hpp"
#include "program.hpp"

namespace sluice::endtoend {

using namespace std::chrono_literals;

/// Real processes: programs under the preloaded interposer, the controller, a GPU (simulated,
/// unless SLUICE_TEST_LIBCUDA_DIR names the folder of a real libcuda.so.1), in a session of their
/// own. At the end everything is taken down in good order, and nothing of it may be left.
class SessionTest : public controller::test::ControllerTest {
 protected:
  SessionTest() : ControllerTest("e2e") {}
  void SetUp() override;
  void TearDown() override;

  /// Starts the session's controller; replaces the one before, which must have ended.
  void start_controller(const std::vector<std::string>& more = {});
  [[nodiscard]] Child& controller() const { return *controller_; }
  /// The controller stands still, and no program may find it silent: see its tests' support. What
  /// the programs found before is over.
  void stop_controller_with_fresh_heartbeat() const;
  /// SIGKILL, and waits for its end.
  void kill_controller();

  /// A program that has not touched the GPU's queue yet, and so has no slot.
  Program& start_unattached(const ProgramOptions& options);
  /// A program with a slot.
  Program& start(const ProgramOptions& options);
  Program& start_best_effort(const std::string& policy) { return start({0, policy, {}}); }
  /// A best-effort program that launches from the start, also while it is to be held.
  Program& start_looping(const std::string& policy);
  Program& start_critical(int priority = 1) { return start({priority, "device:4", {}}); }

  /// In good order: exit() in every program that lives, then SIGTERM for the controller.
  void end_all();
  /// The simulated GPU ends, and has written all of its log. False on a real GPU.
  bool end_gpu();
  [[nodiscard]] GpuLog gpu_log() const { return GpuLog(directory_ + "/gpu.log"); }
  [[nodiscard]] static bool on_real_gpu();

  /// The board, looked at as `status` does; always the one that has the name now.
  [[nodiscard]] Look look() const { return Look(session_); }
  /// Slot of a process, or -1.
  [[nodiscard]] static int slot_of(const Look& look, pid_t pid);
  [[nodiscard]] int slot_of(const Program& program) const;
  [[nodiscard]] std::uint64_t gate_of(const Program& program) const;
  [[nodiscard]] shm::SlotState state_of(const Program& program) const;
  /// A counter, summed over all launch entries.
  [[nodiscard]] std::uint64_t counted(const Program& program, shm::Count count) const;

  /// Its gate is closed and, on the GPU, none of its work ends any more.
  [[nodiscard]] bool becomes_held(const Program& program) const;
  /// Work of a looping program goes on to be done.
  [[nodiscard]] static bool flows(const Program& program);
  /// Does `act`; gives the milliseconds until work of the program is done again. Negative: never.
  [[nodiscard]] static double ms_until_flow(const Program& program,
                                            const std::function<void()>& act);
  /// Prints a time with its bound, and fails the test if it is over. The bound is multiplied by
  /// SLUICE_TEST_TIME_FACTOR, for machines that are loaded.
  static void expect_within(const std::string& what, double ms, double bound_ms);

  [[nodiscard]] std::vector<std::string> left_over() const;

 private:
  std::unique_ptr<Child> controller_;
  std::vector<std::unique_ptr<Program>> programs_;
  bool controller_killed_ = false;
};

/// On the simulated GPU only, whose log tells what it did when; with a critical program.
class SimulatedSessionTest : public SessionTest {
 protected:
  void SetUp() override {
    if (on_real_gpu()) GTEST_SKIP() << "reads the log of the simulated GPU";
    SessionTest::SetUp();
    start_controller();
    critical_ = &start_critical();
  }
  void TearDown() override {
    if (!on_real_gpu()) SessionTest::TearDown();
  }

  Program* critical_ = nullptr;
};

}  // namespace sluice::endtoend
