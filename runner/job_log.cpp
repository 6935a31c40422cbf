#include "runner/job_log.hpp"

#include <fmt/format.h>

namespace sluice::runner {

JobLog::JobLog(const std::string& path, int priority, const std::vector<std::string>& header)
    : file_(path), priority_(priority) {
  std::string text;
  for (const std::string& line : header) text += line + "\n";
  file_.write(text);
}

void JobLog::group_start(std::uint64_t realtime_ns) {
  file_.write(fmt::format("{} kernelGroupStart\n\n", realtime_ns / 1000));
}

void JobLog::group_end(std::uint64_t realtime_ns) {
  file_.write(fmt::format("{} kernelGroupEnd\n\n", realtime_ns / 1000));
}

void JobLog::job(const JobRecord& record) {
  file_.write(
      fmt::format("JCT {} {} {:.6f}\n\n", record.end_realtime_ns, priority_, record.jct_ms));
}

JobCsv::JobCsv(const std::string& path) : file_(path) {
  file_.write(std::string(kJobCsvHeader) + "\n");
}

void JobCsv::job(const JobRecord& record, std::uint64_t allocated_bytes,
                 std::uint64_t reserved_bytes) {
  file_.write(fmt::format("{},{},{:.6f},{},{}\n", record.start_realtime_ns, record.end_realtime_ns,
                          record.jct_ms, allocated_bytes, reserved_bytes));
}

}  // namespace sluice::runner
