#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "predictor/commands/commands.hpp"
#include "predictor/data/make_dataset.hpp"

namespace sluice::predictor {
namespace {

using nlohmann::json;

/// {"programs": [{"id", "features", "position"}]} -> {"ok": true, "seconds": [..]}.
json answer_to(const std::string& line, const LatencyModel& model,
               const std::vector<DeviceInfo>& devices) {
  try {
    const json request = json::parse(line);
    Dataset data;
    data.devices = {devices[0].name};
    data.tasks.emplace_back();
    std::vector<Query> queries;
    for (const json& program : request.at("programs")) {
      queries.push_back({data.programs.size(), 0});
      data.programs.push_back(
          program_of(program.at("id"), program.at("features"), program.at("position"), "rank"));
    }
    if (queries.empty()) return {{"ok", true}, {"seconds", json::array()}};
    return {{"ok", true}, {"seconds", model.predict(data, devices, queries)}};
  } catch (const json::exception& error) {
    return {{"ok", false}, {"error", error.what()}};
  } catch (const base::UsageError& error) {
    return {{"ok", false}, {"error", error.what()}};
  } catch (const base::RunError& error) {
    return {{"ok", false}, {"error", error.what()}};
  }
}

}  // namespace

/// Answers each line of standard input with one line, until it ends.
void rank_command(const Options& options) {
  if (options.device_name.empty()) {
    throw base::UsageError("--device-name is missing: the device that the programs will run on");
  }
  const auto known = read_devices(devices_file(options).string());
  const std::vector<DeviceInfo> devices{device_info(known, options.device_name)};
  const auto model = load_predictor(options);
  std::string line;
  while (std::getline(std::cin, line)) {
    std::cout << answer_to(line, *model, devices).dump() << std::endl;
  }
}

}  // namespace sluice::predictor
