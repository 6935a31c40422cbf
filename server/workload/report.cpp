#include "server/workload/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/statistics.hpp"
#include "server/workload/train_jobs.hpp"

namespace sluice::server::workload {
namespace {

constexpr double kNsPerMs = 1e6;
constexpr std::size_t kColumns = 4;

double ms(std::uint64_t ns) { return static_cast<double>(ns) / kNsPerMs; }

/// Early answers exist: a server may refuse a request by its headers, before it is due.
double latency_ms(const Record& record) {
  return record.end_ns > record.due_ns ? ms(record.end_ns - record.due_ns) : 0;
}

bool good(const Record& record) { return record.code == Code::kOk; }

/// 99, 95, 90, ... 5
std::vector<int> percents() {
  std::vector<int> list{99};
  for (int p = 95; p > 0; p -= 5) list.push_back(p);
  return list;
}

double percentile(const std::vector<double>& sample, int percent) {
  return base::percentile(sample, percent / 100.0);
}

using Row = std::vector<std::string>;

std::vector<Row> rows(const Summary& summary, double seconds) {
  // Sorted once: base::percentile() sorts its copy for each of them.
  std::vector<double> sorted = summary.latency_ms;
  std::sort(sorted.begin(), sorted.end());
  const auto count = static_cast<double>(sorted.size());
  std::vector<Row> rows{
      {fmt::format("cnt: {}", sorted.size()), fmt::format("ltc.avg: {:.1f}", base::mean(sorted)),
       fmt::format("ltc.max: {:.1f}", sorted.back()),
       fmt::format("thpt: {:.1f}r/s", seconds > 0 ? count / seconds : 0)},
      {}};
  for (const int percent : percents()) {
    if (rows.back().size() == kColumns) rows.emplace_back();
    rows.back().push_back(fmt::format("p{}: {:.1f}", percent, percentile(sorted, percent)));
  }
  return rows;
}

std::vector<Record> of_worker(const std::vector<Record>& records, std::uint32_t worker) {
  std::vector<Record> own;
  std::copy_if(records.begin(), records.end(), std::back_inserter(own),
               [&](const Record& record) { return record.worker == worker; });
  std::stable_sort(own.begin(), own.end(),
                   [](const Record& a, const Record& b) { return a.due_ns < b.due_ns; });
  return own;
}

std::string result_of(const Record& record) {
  if (!record.sent) return "not_sent";
  return record.code ? std::string(to_string(*record.code)) : "unanswered";
}

template <class Value>
double value_at(const Output& output, std::size_t index) {
  Value value{};
  std::memcpy(&value, output.data.data() + index * sizeof(Value), sizeof(Value));
  return static_cast<double>(value);
}

/// Nothing: a type without numbers, or one that C++20 lacks.
std::optional<double> number_at(const Output& output, std::size_t index) {
  using engine::DataType;
  switch (output.type) {
    case DataType::kFp32:
      return value_at<float>(output, index);
    case DataType::kFp64:
      return value_at<double>(output, index);
    case DataType::kBool:
    case DataType::kUint8:
      return value_at<std::uint8_t>(output, index);
    case DataType::kInt8:
      return value_at<std::int8_t>(output, index);
    case DataType::kInt16:
      return value_at<std::int16_t>(output, index);
    case DataType::kUint16:
      return value_at<std::uint16_t>(output, index);
    case DataType::kInt32:
      return value_at<std::int32_t>(output, index);
    case DataType::kUint32:
      return value_at<std::uint32_t>(output, index);
    case DataType::kInt64:
      return value_at<std::int64_t>(output, index);
    case DataType::kUint64:
      return value_at<std::uint64_t>(output, index);
    default:
      return std::nullopt;
  }
}

}  // namespace

Summary summarise(const std::vector<Record>& records, std::uint32_t worker,
                  std::optional<double> slo_ms) {
  Summary summary;
  for (const Record& record : records) {
    if (record.worker != worker) continue;
    if (!record.sent) {
      ++summary.not_sent;
      continue;
    }
    const std::uint64_t lag_ns = std::max(record.sent_ns, record.due_ns) - record.due_ns;
    summary.lag_ms.push_back(ms(lag_ns));
    if (!record.code) {
      ++summary.unanswered;
    } else if (good(record)) {
      summary.latency_ms.push_back(latency_ms(record));
      if (slo_ms && summary.latency_ms.back() > *slo_ms) ++summary.deadline_misses;
    } else {
      ++summary.errors[*record.code];
      if (*record.code == Code::kResourceExhausted) ++summary.refused;
      if (*record.code == Code::kDeadlineExceeded) ++summary.deadline_misses;
    }
  }
  return summary;
}

std::string table(const std::string& model, const Summary& summary, double seconds) {
  if (summary.latency_ms.empty()) {
    return fmt::format("[InferWorker TRACE {}] no inference record\n", model);
  }
  const std::vector<Row> lines = rows(summary, seconds);
  std::array<std::size_t, kColumns> width{};
  for (const Row& row : lines) {
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::size_t total = 3 * kColumns + 1;
  for (const std::size_t each : width) total += each;
  const std::string title = fmt::format("InferWorker {} ({:.6g} sec)", model, seconds);
  // A long name makes the box wider; the published client fails there.
  total = std::max(total, title.size() + 2);
  const std::size_t space = total - 2 - title.size();
  const std::string bar(total, '=');
  std::string text =
      bar + "\n|" + std::string(space / 2, ' ') + title + std::string((space + 1) / 2, ' ') + "|\n";
  for (const Row& row : lines) {
    text += "| ";
    for (std::size_t i = 0; i < row.size(); ++i) text += fmt::format("{:<{}} | ", row[i], width[i]);
    text += '\n';
  }
  return text + bar + "\n";
}

std::string trace(const std::string& model, const std::vector<Record>& records,
                  std::uint32_t worker) {
  std::string text = fmt::format(
      "[InferWorker TRACE {}] request_time(ms), response_time(ms), latency(ms)\n", model);
  for (const Record& record : of_worker(records, worker)) {
    if (!good(record)) continue;
    text += fmt::format("{:.1f}, {:.1f}, {:.1f}\n", ms(record.due_ns), ms(record.end_ns),
                        latency_ms(record));
  }
  return text;
}

std::string train_report(const TrainSummary& summary) {
  const std::string head = fmt::format("[TrainWorker {}] ", summary.model);
  if (summary.seconds.empty()) return head + "no train record\n";
  const double mean = base::mean(summary.seconds);
  return head + fmt::format("cnt {} | ltc.avg {:.2f}sec | thpt {:.2f}job/s\n",
                            summary.seconds.size(), mean, mean > 0 ? 1 / mean : 0);
}

nlohmann::json to_json(const Worker& worker, const Summary& summary, double seconds) {
  nlohmann::json errors = nlohmann::json::object();
  for (const auto& [code, count] : summary.errors) errors[std::string(to_string(code))] = count;
  nlohmann::json json{{"model", worker.model},
                      {"arrival", describe(worker.law)},
                      {"sent", summary.lag_ms.size()},
                      {"answered", summary.latency_ms.size()},
                      {"refused", summary.refused},
                      {"deadline_misses", summary.deadline_misses},
                      {"not_sent", summary.not_sent},
                      {"unanswered", summary.unanswered},
                      {"errors", errors}};
  if (!summary.lag_ms.empty()) {
    json["send_lag_ms"] = {{"p99", percentile(summary.lag_ms, 99)},
                           {"max", percentile(summary.lag_ms, 100)}};
  }
  if (summary.latency_ms.empty()) return json;
  json["throughput_per_s"] =
      seconds > 0 ? static_cast<double>(summary.latency_ms.size()) / seconds : 0;
  auto& latency = json["latency_ms"];
  latency = {{"mean", base::mean(summary.latency_ms)},
             {"max", percentile(summary.latency_ms, 100)}};
  for (const int percent : percents()) {
    latency["p" + std::to_string(percent)] = percentile(summary.latency_ms, percent);
  }
  return json;
}

std::string progress_line(const LoadProgress& progress, std::optional<double> duration_s) {
  const std::string of = duration_s ? fmt::format(" of {:g}", *duration_s) : "";
  return fmt::format("{:.0f}{} s: {} answered, {} errors, {} outstanding", progress.s, of,
                     progress.answered, progress.errors, progress.outstanding);
}

std::vector<std::string> error_lines(const std::string& model, const Summary& summary,
                                     const std::map<Code, std::string>& messages) {
  std::vector<std::string> lines;
  for (const auto& [code, count] : summary.errors) {
    const auto message = messages.find(code);
    lines.push_back(fmt::format("{}: {} requests: {}{}", model, count, to_string(code),
                                message == messages.end() ? "" : ": " + message->second));
  }
  if (summary.not_sent > 0) {
    lines.push_back(
        fmt::format("{}: {} requests not sent, because --max-outstanding were outstanding", model,
                    summary.not_sent));
  }
  if (summary.unanswered > 0) {
    lines.push_back(
        fmt::format("{}: {} requests had no answer at the end", model, summary.unanswered));
  }
  return lines;
}

std::string csv(const std::vector<Worker>& workers, const std::vector<Record>& records) {
  std::string text = "due_ms,model,sent_ms,end_ms,latency_ms,result\n";
  std::vector<Record> ordered = records;
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const Record& a, const Record& b) { return a.due_ns < b.due_ns; });
  for (const Record& record : ordered) {
    text += fmt::format("{:.3f},{},", ms(record.due_ns), workers[record.worker].model);
    text += record.sent ? fmt::format("{:.3f},", ms(record.sent_ns)) : ",";
    text +=
        record.code ? fmt::format("{:.3f},{:.3f},", ms(record.end_ns), latency_ms(record)) : ",,";
    text += result_of(record) + "\n";
  }
  return text;
}

std::string show_result(std::uint64_t number, const Output& output, std::int64_t count) {
  const std::size_t size = engine::size_of(output.type);
  const std::size_t all = size == 0 ? 0 : output.data.size() / size;
  const std::size_t shown = std::min(all, static_cast<std::size_t>(std::abs(count)));
  const std::size_t first = count > 0 ? 0 : all - shown;
  std::string text = fmt::format("request {} numel {} result[{}{}{}] : ", number, all,
                                 count > 0 ? ":" : "", count, count > 0 ? "" : ":");
  for (std::size_t i = first; i < first + shown; ++i) {
    const auto value = number_at(output, i);
    text += value ? fmt::format("{:.6g} ", *value) : "? ";
  }
  return text + "\n";
}

}  // namespace sluice::server::workload
