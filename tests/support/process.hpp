#pragma once
#include <csignal>
#include <string>
#include <vector>

#include "base/child.hpp"
#include "base/fd.hpp"
#include "tests/support/child.hpp"

namespace sluice::test {

/// How to start a Process. The program appends its output to the files named here.
struct ProcessOptions {
  std::vector<std::string> environment = {};  ///< NAME=VALUE, added to ours or replacing it.
  std::string folder = {};                    ///< Working directory; empty: ours.
  std::string out = {};                       ///< File for standard output; empty: a pipe.
  std::string err = {};                       ///< File for standard error; empty: a pipe.
  int signal_when_we_die = SIGKILL;           ///< So that a killed test leaves no program.
};

/// A program with pipes for its three streams.
class Process : public Child {
 public:
  explicit Process(std::vector<std::string> command, const ProcessOptions& options = {});

  /// Throws if the program has closed its standard input.
  void write_line(const std::string& line) const;
  /// The next line of standard output; empty at the end, or if none comes within kProgramPatience.
  std::string read_line();
  /// Closes standard input and reads both pipes to their end, which also waits for other processes
  /// that have the pipes open. After kProgramPatience fails the test and kills the program.
  base::Captured finish();

 private:
  struct Streams;
  Process(std::vector<std::string> command, const ProcessOptions& options, Streams streams);

  base::Fd in_;
  base::Fd out_;
  base::Fd err_;
  std::string unread_;
};

}  // namespace sluice::test
