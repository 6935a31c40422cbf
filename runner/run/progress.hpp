#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/terminal.hpp"
#include "runner/run/job_table.hpp"

namespace sluice::runner {

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
  base::ProgressLine line_;
};

}  // namespace sluice::runner
