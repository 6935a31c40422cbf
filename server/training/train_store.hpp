#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "server/training/mode.hpp"

namespace sluice::server::training {

/// A command line.
using Command = std::vector<std::string>;

/// The programs that a server may start for training: every file of a folder is a job, named by
/// its stem. A .py file runs under python, which is looked up in PATH; any other file must be
/// executable.
class TrainStore {
 public:
  /// python: the interpreter; empty: $SLUICE_PYTHON, else python3. Throws base::UsageError if the
  /// folder does not exist.
  TrainStore(std::filesystem::path folder, std::string python);

  /// Names, sorted.
  [[nodiscard]] std::vector<std::string> jobs() const;
  /// The command of a job: the program, an option for each of `args` ("a=b, c=d" becomes --a b --c
  /// d), and --mode. Throws base::UsageError for an unknown job, one name for several files, a file
  /// that cannot be run, or damaged arguments.
  [[nodiscard]] Command command(const std::string& job, const std::string& args, Mode mode) const;

 private:
  std::filesystem::path folder_;
  std::string python_;
};

/// "a=b, c=d" as --a b --c d. Throws base::UsageError.
[[nodiscard]] Command parse_train_args(const std::string& args);

}  // namespace sluice::server::training
