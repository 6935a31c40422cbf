#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/output.hpp"

namespace sluice::runner {

/// One finished job. The time stamps are CLOCK_REALTIME in ns, also on a simulated GPU. jct_ms is
/// GPU time.
struct JobRecord {
  std::uint64_t start_realtime_ns = 0;
  std::uint64_t end_realtime_ns = 0;
  double jct_ms = 0;
};

/// The published log of a model: header lines, then lines for each job, each followed by an empty
/// line.
class JobLog {
 public:
  JobLog(const std::string& path, int priority, const std::vector<std::string>& header);
  /// CLOCK_REALTIME in ns; the log has microseconds.
  void group_start(std::uint64_t realtime_ns);
  void group_end(std::uint64_t realtime_ns);
  void job(const JobRecord& record);

 private:
  base::LineFile file_;
  int priority_;
};

/// The later CSV log of a model. The first row is the warm-up.
class JobCsv {
 public:
  explicit JobCsv(const std::string& path);
  void job(const JobRecord& record, std::uint64_t allocated_bytes, std::uint64_t reserved_bytes);

 private:
  base::LineFile file_;
};

/// The header line of the CSV log.
inline constexpr const char* kJobCsvHeader =
    "start_timestamp_ns,end_timestamp_ns,jct_ms,max_allocated_gpu_memory_allocated_byte,"
    "max_reserved_gpu_memory_byte";

}  // namespace sluice::runner
