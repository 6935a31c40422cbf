#include "engine/split/results.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <numeric>

#include "base/error.hpp"
#include "base/json_node.hpp"

namespace sluice::engine {

using nlohmann::json;
using nlohmann::ordered_json;

ResultsFile::ResultsFile(const std::filesystem::path& file, std::string model)
    : file_(file), model_(std::move(model)) {
  file_.write(
      "step, model-name, std, solution-best, runtime-bench (ms), overhead, total cost (ms)\n");
}

void ResultsFile::add(const SplitSearch::Generation& generation) {
  const Candidate& best = generation.best;
  const double total = std::accumulate(best.ms.begin(), best.ms.end(), 0.0);
  file_.write(fmt::format("{}, {}, {:.6f}, \"{}\", {:.6f}, {:.6f}, {:.6f}\n", generation.step,
                          model_, best.deviation_ms, best.cuts, best.whole_ms, best.overhead,
                          total));
}

ordered_json MeasuredTarget::to_json() const {
  return {{"file", file}, {"file_bytes", file_bytes}, {"nodes", nodes},
          {"gpu", gpu},   {"torch", torch},           {"batch", batch}};
}

void write_log(const std::filesystem::path& file, const MeasuredTarget& target,
               const std::string& tag, const CandidateTimes& candidates) {
  ordered_json list = ordered_json::array();
  for (const auto& [cuts, times] : candidates) {
    list.push_back({{"cuts", cuts}, {"ms", times.ms}, {"whole_ms", times.whole_ms}});
  }
  const ordered_json log{
      {"target", target.to_json()}, {"tag", tag}, {"candidates", std::move(list)}};
  base::LineFile(file).write(log.dump(1) + "\n");
}

CandidateTimes read_log(const std::filesystem::path& file, const MeasuredTarget& target) {
  CandidateTimes candidates;
  if (!std::filesystem::exists(file)) return candidates;
  const json log = base::parse_json_file(file);
  try {
    if (log.at("target") != json(target.to_json())) return candidates;
    for (const json& entry : log.at("candidates")) {
      candidates.emplace(entry.at("cuts").get<Cuts>(),
                         SplitTimes{entry.at("ms"), entry.at("whole_ms")});
    }
  } catch (const json::exception& error) {
    throw base::UsageError(
        fmt::format("{} cannot be understood ({}); remove it, or leave out --cache", file.string(),
                    error.what()));
  }
  return candidates;
}

}  // namespace sluice::engine
