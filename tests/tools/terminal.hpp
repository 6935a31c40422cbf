#pragma once
#include <sys/types.h>
#include <termios.h>

#include <string>
#include <vector>

namespace sluice::tools::test {

/// A program on a terminal of its own. Killed with the object if it still runs.
class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& command, int columns = 80, int rows = 24);
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  void type(const std::string& keys) const;
  void resize(int columns, int rows) const;
  /// Reads what is written until `words` come; false if they do not.
  bool shows(const std::string& words);
  /// Reads to its end: exit code, or 128 + signal.
  int finish();
  /// All that it wrote since the last shows() that was true, or since its start.
  [[nodiscard]] const std::string& written() const { return written_; }
  /// Whether the terminal's own settings are those from before it started.
  [[nodiscard]] bool is_as_before() const;

 private:
  bool read_some();

  pid_t pid_ = -1;
  int fd_ = -1;
  int slave_ = -1;  ///< Kept open: the settings are gone with the last one.
  termios before_{};
  std::string written_;
};

}  // namespace sluice::tools::test
