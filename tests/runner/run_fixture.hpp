#pragma once
#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/child.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::runner::test {

/// Runs `sluice run` and `sluice demo` of the build on the simulated GPU, in a folder and with
/// names of its own.
class RunTest : public ::testing::Test {
 protected:
  RunTest();

  /// Two models, critical and best_effort, both hooked; a test changes what it is about.
  [[nodiscard]] static nlohmann::json two_models();
  /// Writes it to exp.json.
  void write_experiment(const nlohmann::json& experiment) const;

  /// Runs `program args` in the folder, to its end.
  [[nodiscard]] base::Captured run(const std::string& program, std::vector<std::string> args);
  /// Starts it, its outputs in stdout.txt and stderr.txt.
  [[nodiscard]] pid_t start(const std::string& program, std::vector<std::string> args);
  /// Exit code, 128 + signal if it was killed.
  [[nodiscard]] static int wait_for(pid_t pid);

  /// Waits until a model's log has a job, so that the run is known to be under way.
  void wait_for_jobs(const std::string& model, std::size_t count = 1) const;
  [[nodiscard]] std::size_t jobs(const std::string& model) const;
  /// Workers, from models_pid.json.
  [[nodiscard]] std::vector<pid_t> worker_pids() const;
  [[nodiscard]] std::string read(const std::string& file) const;

  /// Nothing of this test's sessions is left: boards, sockets, processes.
  void expect_nothing_left() const;

  /// Whether `condition` comes true within a generous time.
  [[nodiscard]] static bool eventually(const std::function<bool()>& condition);

  sluice::test::TempFolder folder_;

 private:
  pid_t last_started_ = 0;
};

}  // namespace sluice::runner::test
