#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "progress.hpp"
#include "tests/controller/support.hpp"

namespace sluice::endtoend {

using controller::test::Child;
using controller::test::eventually;
using controller::test::Look;

/// How a fault_client is started.
struct ProgramOptions {
  int priority = 0;
  std::string policy = "device:4";
  std::vector<std::string> environment;  ///< More variables, NAME=VALUE.
};

/// A fault_client under the preloaded interposer. Killed with the object if it still lives.
class Program {
 public:
  /// `folder`: where its progress and its standard error go, under `name`.
  Program(const std::string& folder, const std::string& name, const std::string& session,
          const ProgramOptions& options);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  /// Sends a command and gives what it answered behind `ok `. Fails the test if it did not.
  std::string ask(const std::string& command);
  /// The same for an answer of numbers.
  std::vector<std::uint64_t> ask_numbers(const std::string& command);
  /// Sends a command that is not answered, or not soon.
  void tell(const std::string& command) const { process_->write_line(command); }
  std::string answer() const { return process_->read_line(); }

  void signal(int number) const { process_->signal(number); }
  int wait();
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] pid_t pid() const { return process_->pid(); }
  /// What it, and the interposer in it, said on standard error.
  [[nodiscard]] std::string said() const;

  [[nodiscard]] Progress& progress() const { return *progress_; }
  [[nodiscard]] std::uint64_t done(std::size_t lane = 0) const {
    return progress_->lanes[lane].done.load();
  }
  [[nodiscard]] std::uint64_t launched(std::size_t lane = 0) const {
    return progress_->lanes[lane].launched.load();
  }

 private:
  std::string log_;
  std::string progress_file_;
  Progress* progress_ = nullptr;
  std::unique_ptr<Child> process_;
  bool ended_ = false;
};

/// How often `word` stands in `text`.
std::size_t count_of(const std::string& text, const std::string& word);

}  // namespace sluice::endtoend
