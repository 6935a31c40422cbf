#pragma once
#include <cstddef>
#include <optional>
#include <string>

/// What depends on whether somebody looks at a terminal.
namespace sluice::base {

/// The width of standard output: that of its terminal, else COLUMNS (40 to 1000), which `watch`
/// sets. Empty for a pipe or a file, where lines may have any length.
[[nodiscard]] std::optional<std::size_t> terminal_columns();

/// Progress on stderr: one line that is rewritten on a terminal, else a line every 5 s.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Whether it is time to show the next line. Cheap.
  [[nodiscard]] bool due(double elapsed_s) const { return elapsed_s >= next_s_; }
  void show(double elapsed_s, const std::string& text);
  /// Removes the line before something else is printed.
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
  double next_s_;
};

}  // namespace sluice::base
