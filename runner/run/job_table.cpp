#include "runner/run/job_table.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <utility>

#include "base/statistics.hpp"

namespace sluice::runner {
namespace {

/// The complete lines of a file after its header.
std::vector<std::string> rows(const std::string& file) {
  std::ifstream in(file);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  std::vector<std::string> lines;
  std::size_t from = 0;
  for (std::size_t to = 0; (to = text.find('\n', from)) != std::string::npos; from = to + 1) {
    lines.push_back(text.substr(from, to - from));
  }
  if (!lines.empty()) lines.erase(lines.begin());
  return lines;
}

void read_arrivals(const std::string& file, JobTable& table) {
  constexpr double kOnTimeMs = 0.1;
  std::vector<double> queued;
  for (const std::string& row : rows(file)) {
    double due = 0;
    double waited = 0;
    if (std::sscanf(row.c_str(), "%lf,%lf", &due, &waited) == 2) queued.push_back(waited);
  }
  if (queued.empty()) return;
  table.mean_queued_ms = base::mean(queued);
  table.late = static_cast<std::uint64_t>(
      std::count_if(queued.begin(), queued.end(), [](double ms) { return ms > kOnTimeMs; }));
}

}  // namespace

JobTable read_job_table(const std::string& csv_file, const std::string& arrivals_file) {
  JobTable table;
  std::uint64_t first_start = 0;
  std::uint64_t last_end = 0;
  bool warm_up = true;
  for (const std::string& row : rows(csv_file)) {
    unsigned long long start = 0;
    unsigned long long end = 0;
    double jct = 0;
    if (std::sscanf(row.c_str(), "%llu,%llu,%lf", &start, &end, &jct) != 3) continue;
    if (std::exchange(warm_up, false)) continue;
    if (table.jct_ms.empty()) first_start = start;
    last_end = end;
    table.jct_ms.push_back(jct);
    table.spans.push_back({start, end});
  }
  if (last_end > first_start) table.span_s = static_cast<double>(last_end - first_start) / 1e9;
  read_arrivals(arrivals_file, table);
  return table;
}

std::uint64_t JobCounter::count() {
  constexpr std::uint64_t kHeaderAndWarmUp = 2;
  std::ifstream in(csv_file_);
  in.seekg(static_cast<std::streamoff>(offset_));
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  offset_ += text.size();
  lines_ += static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
  return lines_ < kHeaderAndWarmUp ? 0 : lines_ - kHeaderAndWarmUp;
}

}  // namespace sluice::runner
