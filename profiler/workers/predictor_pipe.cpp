#include "profiler/workers/predictor_pipe.hpp"

#include <cmath>

#include "base/error.hpp"
#include "base/install.hpp"

namespace sluice::profiler {
namespace {

using nlohmann::json;

constexpr double kLimitS = 300;

std::vector<std::string> command_of(const std::string& folder, const std::string& device) {
  std::vector<std::string> command{base::Install::of_this_program().subcommand("predict"), "rank",
                                   "--device-name", device};
  if (!folder.empty()) command.insert(command.end(), {"--cache_dir", folder});
  return command;
}

}  // namespace

PredictorPipe::PredictorPipe(const std::string& folder, const std::string& device)
    : PredictorPipe(command_of(folder, device)) {}

PredictorPipe::PredictorPipe(std::vector<std::string> command)
    : pool_({std::move(command)}, kLimitS) {
  // A mistake in the options must not wait for the first programs.
  (void)ask_for({{"programs", json::array()}});
}

std::vector<float> PredictorPipe::rate(const Task& task,
                                       const std::vector<std::optional<Program>>& programs) {
  json request{{"task", to_json(task)}, {"programs", json::array()}};
  for (const auto& program : programs) {
    if (!program) continue;
    json line = to_json(*program);
    line.erase("cubin");
    request["programs"].push_back(std::move(line));
  }
  const json answer = ask_for(request);
  std::vector<float> rated;
  std::size_t at = 0;
  for (const auto& program : programs) {
    const json seconds = program ? answer.at("seconds").at(at++) : json();
    rated.push_back(seconds.is_null() ? -INFINITY
                                      : static_cast<float>(-std::log(seconds.get<double>())));
  }
  return rated;
}

json PredictorPipe::ask_for(const json& request) {
  const WorkerAnswer given = ask(pool_, 0, request.dump());
  if (given.how == WorkerAnswer::How::kTimeout) {
    throw base::RunError("sluice predict rank: no answer within 300 s");
  }
  if (given.how == WorkerAnswer::How::kDied) {
    throw base::RunError("sluice predict rank " + given.text + "; see above");
  }
  json answer = json::parse(given.text);
  if (!answer.at("ok")) {
    throw base::RunError("sluice predict rank: " + answer.at("error").get<std::string>());
  }
  return answer;
}

}  // namespace sluice::profiler
