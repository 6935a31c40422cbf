#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/process.hpp"
#include "tests/support/session.hpp"
#include "tests/support/standins/fault_client/progress.hpp"

namespace sluice::test {

/// How to start a fault_client.
struct ProgramOptions {
  int priority = 0;
  std::string policy = "device:4";
  std::vector<std::string> environment = {};  ///< More variables, NAME=VALUE.
};

/// The page that a fault_client shares with its test.
class SharedProgress {
 public:
  /// `file` must not exist.
  explicit SharedProgress(std::string file);
  ~SharedProgress();
  SharedProgress(const SharedProgress&) = delete;
  SharedProgress& operator=(const SharedProgress&) = delete;

  [[nodiscard]] const std::string& file() const { return file_; }
  [[nodiscard]] Progress& progress() const { return *progress_; }
  [[nodiscard]] std::uint64_t done(std::size_t lane = 0) const {
    return progress_->lanes[lane].done.load();
  }
  [[nodiscard]] std::uint64_t launched(std::size_t lane = 0) const {
    return progress_->lanes[lane].launched.load();
  }

 private:
  std::string file_;
  Progress* progress_ = nullptr;
};

/// A fault_client under the preloaded interposer.
class Program : public SharedProgress, public Process {
 public:
  /// `name`: the name of its log in the session's folder, and of its progress file.
  Program(const Session& session, const std::string& name, const ProgramOptions& options);

  /// Sends a command and returns what follows `ok ` in the answer. Fails the test if there is none.
  std::string ask(const std::string& command);
  /// The same for an answer that consists of numbers.
  std::vector<std::uint64_t> ask_numbers(const std::string& command);
  /// Sends a command without waiting for an answer.
  void tell(const std::string& command) const { write_line(command); }
  std::string answer() { return read_line(); }

  /// The standard error output of the program and of its interposer.
  [[nodiscard]] std::string said() const { return read_file(log_); }

 private:
  std::string log_;
};

/// How often `word` is in `text`.
std::size_t count_of(const std::string& text, const std::string& word);

}  // namespace sluice::test
