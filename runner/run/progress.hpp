#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runner/run/job_table.hpp"

namespace sluice::runner {

/// On stderr: one line that is rewritten on a terminal, else a line every few seconds.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine() { clear(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  /// Whether it is time to show another one. Ask as often as you like.
  [[nodiscard]] bool due(double elapsed_s) const { return elapsed_s >= next_s_; }
  void show(double elapsed_s, const std::string& text);
  /// Takes the line away, before something else is printed.
  void clear();

 private:
  bool terminal_;
  bool shown_ = false;
  double next_s_;
};

/// Tells how far a run is.
class Progress {
 public:
  /// names and csv_files: of the models, in order.
  Progress(double duration_s, const std::vector<std::string>& names,
           const std::vector<std::string>& csv_files);

  /// Call it as often as you like.
  void update(double elapsed_s);
  void clear() { line_.clear(); }

 private:
  struct Line {
    std::string name;
    JobCounter jobs;
  };
  double duration_s_;
  std::vector<Line> models_;
  ProgressLine line_;
};

}  // namespace sluice::runner
