#include "server/workload/trace_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <string_view>

#include "base/error.hpp"
#include "base/trimmed.hpp"

namespace sluice::server::workload {
namespace {

constexpr double kMostMs = 1e12;

/// Nothing: no time.
std::optional<double> time_ms(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  if (!(value >= 0 && value <= kMostMs)) return std::nullopt;
  return value;
}

/// The model of the line `[InferWorker TRACE m] request_time(ms), ...` of a published report.
std::optional<std::string> section_of(std::string_view line) {
  constexpr std::string_view kBegin = "[InferWorker TRACE ";
  if (!line.starts_with(kBegin)) return std::nullopt;
  const auto end = line.find(']');
  if (end == std::string::npos || end == kBegin.size()) return std::nullopt;
  return std::string(line.substr(kBegin.size(), end - kBegin.size()));
}

/// A line of the boxed table above such a part.
bool is_table(std::string_view line) { return line.front() == '=' || line.front() == '|'; }

/// Takes the lines of a file, either of our CSV or of a published report.
class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  void take(std::string_view line, int number) {
    if (const auto model = section_of(line)) {
      section_ = *model;
      published_ = true;
    } else if (!section_.empty()) {
      const auto time = time_ms(base::trimmed(line.substr(0, line.find(','))));
      if (time) return add(section_, *time);
      section_.clear();  // the next table
    } else if (!published_ && !is_table(line)) {
      take_csv(line, number);
    }
  }

  [[nodiscard]] std::map<std::string, std::vector<std::uint64_t>>& due_ns() { return due_ns_; }

 private:
  void take_csv(std::string_view line, int number) {
    const auto comma = line.find(',');
    const auto time = time_ms(base::trimmed(line.substr(0, comma)));
    if (!time && number == 1) return;  // the head
    std::string model;
    if (comma != std::string::npos) {
      model = base::trimmed(line.substr(comma + 1, line.find(',', comma + 1) - comma - 1));
    }
    if (!time || model.empty()) {
      throw base::UsageError(
          fmt::format("{}:{}: found '{}', allowed: time in ms,model", file_, number, line));
    }
    add(model, *time);
  }
  void add(const std::string& model, double time) {
    due_ns_[model].push_back(static_cast<std::uint64_t>(time * 1e6));
  }

  std::string file_;
  std::string section_;  ///< The model of a part of a published report.
  bool published_ = false;
  std::map<std::string, std::vector<std::uint64_t>> due_ns_;
};

}  // namespace

std::vector<Worker> read_trace(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw base::UsageError("--trace " + file + ": " + std::strerror(errno));
  Reader reader(file);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    const std::string_view text = base::trimmed(line);
    if (!text.empty()) reader.take(text, number);
  }
  if (reader.due_ns().empty()) throw base::UsageError("--trace " + file + ": no arrivals");
  std::vector<Worker> workers;
  for (auto& [model, times] : reader.due_ns()) {
    std::sort(times.begin(), times.end());
    workers.push_back({model, Replay{std::move(times)}});
  }
  return workers;
}

}  // namespace sluice::server::workload
