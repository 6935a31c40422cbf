#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runner/run/job_table.hpp"

namespace sluice::runner {

/// Tells on stderr how far a run is: one line that is rewritten on a terminal, else a line every
/// few seconds.
class Progress {
 public:
  /// names and csv_files: of the models, in order.
  Progress(double duration_s, const std::vector<std::string>& names,
           const std::vector<std::string>& csv_files);
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Call it as often as you like.
  void update(double elapsed_s);
  /// Takes the line away, before something else is printed.
  void clear();

 private:
  struct Line {
    std::string name;
    JobCounter jobs;
  };
  double duration_s_;
  std::vector<Line> models_;
  bool terminal_;
  bool shown_ = false;
  double next_s_;
};

}  // namespace sluice::runner
