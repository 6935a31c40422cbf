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

/// Runs programs of the build, such as `sluice run`, on the simulated GPU and in a folder of the
/// test's own. Each run has its own session.
class RunTest : public testing::Test {
 protected:
  RunTest();

  /// Two hooked models, critical and best_effort.
  [[nodiscard]] static nlohmann::json two_models();
  /// Writes exp.json.
  void write_experiment(const nlohmann::json& experiment) const;

  /// Runs `program args` in the folder, to its end.
  [[nodiscard]] base::Captured run(const std::string& program, std::vector<std::string> args);
  /// Starts `program args`, with its outputs in stdout.txt and stderr.txt.
  [[nodiscard]] std::unique_ptr<Process> start(const std::string& program,
                                               std::vector<std::string> args);

  /// Waits until a model's log has `count` jobs.
  void wait_for_jobs(const std::string& model, std::size_t count = 1) const;
  /// `sluice run` of two_models() for `exp_dur` seconds. Returns when there are critical jobs.
  [[nodiscard]] std::unique_ptr<Process> start_two_models(int exp_dur);
  [[nodiscard]] std::size_t jobs(const std::string& model) const;
  /// The workers, from models_pid.json.
  [[nodiscard]] std::vector<pid_t> worker_pids() const;
  [[nodiscard]] std::string read(const std::string& file) const;

  /// Fails if a worker or a file of the sessions of this test is left.
  void expect_nothing_left() const;

  TempFolder folder_;

 private:
  /// The session that the last run creates for itself, and the sessions that results.json files
  /// name.
  [[nodiscard]] std::vector<std::string> sessions() const;

  pid_t last_started_ = 0;
};

}  // namespace sluice::test
