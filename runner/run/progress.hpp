#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runner/run/job_table.hpp"

namespace sluice::runner {

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

/// Shows the elapsed time of a run and the jobs of each model.
class Progress {
 public:
  /// names, csv_files: one per model, in the same order.
  Progress(double duration_s, const std::vector<std::string>& names,
           const std::vector<std::string>& csv_files);

  /// Shows a line if one is due. Cheap.
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
