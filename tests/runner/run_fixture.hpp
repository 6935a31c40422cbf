#pragma once
#include <gtest/gtest.h>
#include <sys/types.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/process.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::test {

/// How long `sluice run` may take, loading included.
inline constexpr std::chrono::milliseconds kRunPatience = 5min;

/// Runs `sluice run` and `sluice demo` of the build on the simulated GPU, in a folder of its own.
/// Each run names its own session.
class RunTest : public testing::Test {
 protected:
  RunTest();

  /// Two hooked models, critical and best_effort. A test changes what it is about.
  [[nodiscard]] static nlohmann::json two_models();
  /// Writes exp.json.
  void write_experiment(const nlohmann::json& experiment) const;

  /// Runs `program args` in the folder, to its end.
  [[nodiscard]] base::Captured run(const std::string& program, std::vector<std::string> args);
  /// Starts `program args`, with its outputs in stdout.txt and stderr.txt.
  [[nodiscard]] std::unique_ptr<Process> start(const std::string& program,
                                               std::vector<std::string> args);

  /// Waits until a model's log has a job, so that the run is known to be under way.
  void wait_for_jobs(const std::string& model, std::size_t count = 1) const;
  [[nodiscard]] std::size_t jobs(const std::string& model) const;
  /// The workers, from models_pid.json.
  [[nodiscard]] std::vector<pid_t> worker_pids() const;
  [[nodiscard]] std::string read(const std::string& file) const;

  /// Fails if a worker or a file is left of the sessions of this test.
  void expect_nothing_left() const;

  TempFolder folder_;

 private:
  /// The session that the last run would make for itself, and those that results.json files name.
  [[nodiscard]] std::vector<std::string> sessions() const;

  pid_t last_started_ = 0;
};

}  // namespace sluice::test
