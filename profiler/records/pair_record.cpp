#include "profiler/records/pair_record.hpp"

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace sluice::profiler {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// JSON has no infinity.
ordered_json finite(double value) {
  return std::isfinite(value) ? ordered_json(value) : ordered_json();
}

}  // namespace

PairEffect effect_of(const PairTimes& times) {
  std::array<double, 2> busy_s{};
  for (const std::size_t i : {0U, 1U}) {
    busy_s[i] = times.alone_s[i] * static_cast<double>(times.runs[i]);
  }
  PairEffect effect;
  if (times.serial_s == 0) {
    for (const std::size_t i : {0U, 1U}) effect.slowdown[i] = times.together_s[i] / busy_s[i];
    effect.speedup = 1 / effect.slowdown[0] + 1 / effect.slowdown[1];
    return effect;
  }
  const auto [first_end, last_end] = std::minmax(times.together_s[0], times.together_s[1]);
  for (const std::size_t i : {0U, 1U}) {
    const double done_s = busy_s[i] - (times.together_s[i] - first_end);
    effect.slowdown[i] = done_s > 0 ? first_end / done_s : INFINITY;
  }
  effect.speedup = times.serial_s / last_end;
  return effect;
}

std::string to_line(const PairRecord& record) {
  ordered_json line{{"kind", record.kind},
                    {"device", record.device},
                    {"programs", {record.sides[0].program, record.sides[1].program}},
                    {"tasks", {record.sides[0].task, record.sides[1].task}},
                    {"error", static_cast<int>(record.error)}};
  if (record.error != MeasureError::kNone) return line.dump();
  const PairTimes& times = record.times;
  const PairEffect effect = effect_of(times);
  line["alone_s"] = times.alone_s;
  line["runs"] = times.runs;
  line["together_s"] = times.together_s;
  line["serial_s"] = times.serial_s == 0 ? ordered_json() : ordered_json(times.serial_s);
  line["speedup"] = finite(effect.speedup);
  line["slowdown"] = {finite(effect.slowdown[0]), finite(effect.slowdown[1])};
  line["spread"] = finite(times.spread);
  line["disturbed"] = times.disturbed;
  return line.dump();
}

PairRecord pair_record_of(const std::string& line) {
  try {
    const json value = json::parse(line);
    PairRecord record{.kind = value.at("kind"), .device = value.at("device")};
    for (const std::size_t i : {0U, 1U}) {
      record.sides[i] = {value.at("programs").at(i), value.at("tasks").at(i)};
    }
    record.error = static_cast<MeasureError>(value.at("error").get<int>());
    if (record.error != MeasureError::kNone) return record;
    const json& serial = value.at("serial_s");
    const json& spread = value.at("spread");
    record.times = {.alone_s = value.at("alone_s"),
                    .runs = value.at("runs"),
                    .together_s = value.at("together_s"),
                    .serial_s = serial.is_null() ? 0 : serial.get<double>(),
                    .spread = spread.is_null() ? INFINITY : spread.get<double>(),
                    .disturbed = value.at("disturbed")};
    return record;
  } catch (const json::exception& error) {
    throw base::UsageError(std::string("not a record of a pair: ") + error.what());
  }
}

PairRecords read_pair_records(const std::string& file) {
  PairRecords found;
  found.torn = for_each_line(
      file, [&](const std::string& line) { found.records.push_back(pair_record_of(line)); });
  return found;
}

}  // namespace sluice::profiler
