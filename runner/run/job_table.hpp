#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "runner/run/collisions.hpp"

namespace sluice::runner {

/// The jobs in a model's CSV logs, without the warm-up.
struct JobTable {
  std::vector<double> jct_ms;
  std::vector<JobSpan> spans;  ///< The spans of the same jobs.
  /// From the start of the first job to the end of the last one, real time.
  double span_s = 0;
  std::uint64_t late = 0;     ///< Jobs that started more than 0.1 ms after they were due.
  double mean_queued_ms = 0;  ///< Over all jobs; 0 in a closed loop.
};

/// Reads `csv_file`, and `arrivals_file` if it is not empty. A missing file has no jobs. An
/// incomplete last line, which a killed writer may leave, is ignored.
[[nodiscard]] JobTable read_job_table(const std::string& csv_file,
                                      const std::string& arrivals_file);

/// Counts the jobs in a growing CSV log.
class JobCounter {
 public:
  explicit JobCounter(std::string csv_file) : csv_file_(std::move(csv_file)) {}
  [[nodiscard]] std::uint64_t count();

 private:
  std::string csv_file_;
  std::uint64_t offset_ = 0;
  std::uint64_t lines_ = 0;
};

}  // namespace sluice::runner
