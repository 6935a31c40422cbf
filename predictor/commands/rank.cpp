#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "predictor/commands/commands.hpp"
#include "predictor/data/make_dataset.hpp"

namespace sluice::predictor {
namespace {

using nlohmann::json;

/// The programs of a request that can be read. `read`: for each of the request, whether it can.
Dataset read_programs(const json& request, std::vector<bool>& read) {
  Dataset data;
  data.tasks.push_back(task_of(std::get<profiler::Task>(profiler::pack_entry(request.at("task")))));
  std::string why;
  for (const json& line : request.at("programs")) {
    try {
      data.programs.push_back(program_of(std::get<profiler::Program>(profiler::pack_entry(line))));
      read.push_back(true);
    } catch (const base::UsageError& error) {  // one of many must not end a tuning
      read.push_back(false);
      why = error.what();
    }
  }
  if (!read.empty() && data.programs.empty()) throw base::UsageError(why);
  return data;
}

/// {"programs": [lines of a pack], "task": theirs} -> {"ok": true, "seconds": [..]}, with null for
/// a program that cannot be read.
json answer_to(const std::string& line, const LatencyModel& model, const DeviceInfo& device) {
  try {
    const json request = json::parse(line);
    if (request.at("programs").empty()) return {{"ok", true}, {"seconds", json::array()}};
    std::vector<bool> read;
    const auto predicted = predict_on(device, model, read_programs(request, read));
    if (!std::ranges::all_of(predicted, [](double s) { return std::isfinite(s); })) {
      throw base::UsageError("this predictor needs times of the programs on another device");
    }
    json seconds = json::array();
    std::size_t at = 0;
    for (const bool each : read) seconds.push_back(each ? json(predicted[at++]) : json());
    return {{"ok", true}, {"seconds", seconds}};
  } catch (const std::exception& error) {
    return {{"ok", false}, {"error", error.what()}};
  }
}

}  // namespace

/// Answers each line of standard input with one line, until it ends.
void rank_command(const Options& options) {
  const DeviceInfo device = device_asked_for(options);
  const auto model = load_predictor(options);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << answer_to(line, *model, device).dump() << std::endl;
  }
}

}  // namespace sluice::predictor
