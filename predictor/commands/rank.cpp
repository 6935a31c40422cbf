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

/// {"programs": [lines of a pack], "task": theirs} -> {"ok": true, "seconds": [..]}.
json answer_to(const std::string& line, const LatencyModel& model, const DeviceInfo& device) {
  try {
    const json request = json::parse(line);
    const json& programs = request.at("programs");
    if (programs.empty()) return {{"ok", true}, {"seconds", json::array()}};
    const auto task = std::get<profiler::Task>(profiler::pack_entry(request.at("task")));
    Dataset data;
    data.tasks.push_back(task_of(task));
    for (const json& program : programs) {
      data.programs.push_back(
          program_of(std::get<profiler::Program>(profiler::pack_entry(program)), "rank"));
    }
    const auto seconds = predict_on(device, model, std::move(data));
    if (!std::ranges::all_of(seconds, [](double s) { return std::isfinite(s); })) {
      throw base::UsageError(
          "the predictor has learned nothing of programs of this kind; train one");
    }
    return {{"ok", true}, {"seconds", seconds}};
  } catch (const json::exception& error) {
    return {{"ok", false}, {"error", error.what()}};
  } catch (const base::UsageError& error) {
    return {{"ok", false}, {"error", error.what()}};
  } catch (const std::bad_variant_access&) {
    return {{"ok", false}, {"error", "rank: a line of a pack of another kind"}};
  } catch (const base::RunError& error) {
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
