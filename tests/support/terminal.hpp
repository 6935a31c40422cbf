#pragma once
#include <termios.h>

#include <string>
#include <vector>

#include "base/fd.hpp"
#include "tests/support/child.hpp"

namespace sluice::test {

/// A terminal without a program. Both ends are closed on exec.
struct Pty {
  Pty(int columns, int rows);
  base::Fd master;
  base::Fd slave;      ///< Kept open: the settings are lost with the last descriptor.
  termios settings{};  ///< Of the time when the terminal was made.
};

/// A program on a terminal of its own.
class Terminal : private Pty, public Child {
 public:
  explicit Terminal(const std::vector<std::string>& command, int columns = 80, int rows = 24);

  void type(const std::string& keys) const;
  void resize(int columns, int rows) const;
  /// Reads what the program writes until `words` come. False if they do not.
  bool shows(const std::string& words);
  /// Reads to the end of the program: exit code, or 128 + signal.
  int finish();
  /// All that the program wrote since the last shows() that was true, or since its start.
  [[nodiscard]] const std::string& written() const { return written_; }
  /// Whether the terminal's settings are those from before the program started.
  [[nodiscard]] bool is_as_before() const;

 private:
  bool read_some();

  std::string written_;
};

}  // namespace sluice::test
