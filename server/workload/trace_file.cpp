#include "server/workload/trace_file.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <map>

#include "base/error.hpp"

namespace sluice::server::workload {
namespace {

constexpr double kMostMs = 1e12;

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r");
  if (first == std::string::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

/// Nothing: no time.
std::optional<double> time_ms(const std::string& text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  if (!(value >= 0 && value <= kMostMs)) return std::nullopt;
  return value;
}

}  // namespace

std::vector<Worker> read_trace(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw base::UsageError("--trace " + file + ": " + std::strerror(errno));
  std::map<std::string, std::vector<std::uint64_t>> due_ns;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (trimmed(line).empty()) continue;
    const auto comma = line.find(',');
    const auto time = time_ms(trimmed(line.substr(0, comma)));
    if (!time && number == 1) continue;
    std::string model;
    if (comma != std::string::npos) {
      model = trimmed(line.substr(comma + 1, line.find(',', comma + 1) - comma - 1));
    }
    if (!time || model.empty()) {
      throw base::UsageError(
          fmt::format("{}:{}: found '{}', allowed: time in ms,model", file, number, trimmed(line)));
    }
    due_ns[model].push_back(static_cast<std::uint64_t>(*time * 1e6));
  }
  if (due_ns.empty()) throw base::UsageError("--trace " + file + ": no arrivals");
  std::vector<Worker> workers;
  for (auto& [model, times] : due_ns) {
    std::sort(times.begin(), times.end());
    workers.push_back({model, Replay{std::move(times)}});
  }
  return workers;
}

}  // namespace sluice::server::workload
