#include "predictor/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "base/error.hpp"
#include "predictor/commands/commands.hpp"
#include "predictor/data/mode.hpp"

namespace sluice::predictor {
namespace {

namespace fs = std::filesystem;

/// The tasks of a network on a device, each by its fastest measured program.
struct Measured {
  std::vector<std::size_t> tasks;  ///< Those that have one.
  std::vector<Label> labels;
  std::vector<double> predicted;
  std::map<std::size_t, std::size_t> weight;  ///< Calls by task.
  std::size_t missing = 0;                    ///< Calls of tasks without a measured program.
};

Measured measured(const Loaded& loaded, const LatencyModel& model, const Network& network,
                  std::size_t device) {
  Measured found;
  const auto best = fastest(loaded.data, device);
  for (const auto& call : network.calls) {
    if (!best[call.task]) {
      ++found.missing;
    } else if (found.weight[call.task]++ == 0) {
      found.tasks.push_back(call.task);
      found.labels.push_back(*best[call.task]);
    }
  }
  found.predicted = model.predict(loaded.data, loaded.devices, queries_of(found.labels));
  return found;
}

Replay replay_with(const Network& network, const Measured& found, bool predicted,
                   std::size_t streams) {
  std::map<std::size_t, double> seconds;
  for (std::size_t i = 0; i < found.tasks.size(); ++i) {
    seconds[found.tasks[i]] = predicted ? found.predicted[i] : found.labels[i].seconds;
  }
  std::vector<double> of_calls;
  for (const auto& call : network.calls) {
    const auto known = seconds.find(call.task);
    of_calls.push_back(known == seconds.end() ? 0 : known->second);
  }
  return replay(network, of_calls, streams);
}

void write_statistic(std::ofstream& out, const Loaded& loaded, const Network& network,
                     const std::string& device, const Measured& found) {
  for (std::size_t i = 0; i < found.tasks.size(); ++i) {
    const Task& task = loaded.data.tasks[found.tasks[i]];
    const Program& program = loaded.data.programs[found.labels[i].query.program];
    std::string key = task.workload_key;
    std::ranges::replace(key, '"', '\'');
    out << fmt::format("{},{:.6g},,{:.6g},{},{},{},{:.0f},\"{}\",{},{}\n", task.id,
                       found.labels[i].seconds, found.predicted[i], found.weight.at(found.tasks[i]),
                       program.leaves, device, task.flop, key, network.name, network.batch);
  }
}

/// The published line. It claims a total only if no call is left out.
std::string headline(const Network& network, std::size_t missing, double seconds) {
  const std::size_t calls = network.calls.size();
  if (missing == 0) {
    return fmt::format("[Simple] Estimated total latency of {}: {:.3f} ms", network.name,
                       seconds * 1e3);
  }
  return fmt::format(
      "[Simple] Estimated latency of {} of {} calls of {}: {:.3f} ms; {} {} no measured program",
      calls - missing, calls, network.name, seconds * 1e3, missing, missing == 1 ? "has" : "have");
}

void replay_network(const Options& options, const Loaded& loaded, const LatencyModel& model,
                    const Network& network, std::ofstream& statistic, std::ofstream& sums) {
  const auto wanted = devices_of(loaded.data, parse_mode(options.mode).devices);
  for (std::size_t device = 0; device < loaded.data.devices.size(); ++device) {
    if (!wanted[device]) continue;
    const Measured found = measured(loaded, model, network, device);
    if (found.tasks.empty()) continue;  // a network of another target
    const std::string& name = loaded.data.devices[device];
    const Replay predicted = replay_with(network, found, true, options.streams);
    const Replay actual = replay_with(network, found, false, options.streams);
    fmt::print(
        "{}\n  batch {} on {}: measured sum {:.3f} ms, off by {:.1f} %; on {} streams {:.3f} ms, "
        "measured {:.3f} ms\n",
        headline(network, found.missing, predicted.sum), network.batch, name, actual.sum * 1e3,
        100 * relative_error(actual.sum, predicted.sum), options.streams, predicted.schedule * 1e3,
        actual.schedule * 1e3);
    sums << fmt::format("{},{},{},{},{},{:.6g},{:.6g},{:.6g},{:.6g}\n", network.name, network.batch,
                        name, network.calls.size(), found.missing, predicted.sum, actual.sum,
                        predicted.schedule, actual.schedule);
    write_statistic(statistic, loaded, network, name, found);
  }
}

}  // namespace

void replay_command(const Options& options) {
  const Loaded loaded = load(options);
  if (loaded.data.networks.empty()) throw base::UsageError("the data set has no networks");
  // Refuse a name that is not there.
  if (!options.networks.empty()) (void)tasks_of(loaded.data, options.networks);
  (void)devices_of(loaded.data, parse_mode(options.mode).devices);
  const auto model = load_predictor(options);
  const fs::path folder = results_folder(options);
  fs::create_directories(folder);
  std::ofstream statistic(folder / "statistic.csv");
  statistic
      << "task_id,T_profile,T_tenset,T_predict,weight,N_leaf,src,flop_ct,workload_key,network,"
         "batch\n";
  std::ofstream sums(folder / "replay.csv");
  sums << "network,batch,device,calls,missing,predicted_sum_s,measured_sum_s,predicted_schedule_s,"
          "measured_schedule_s\n";
  for (const Network& network : loaded.data.networks) {
    const bool wanted = std::ranges::any_of(options.networks, [&](const std::string& name) {
      return same_network(name, network.name);
    });
    if (options.networks.empty() || wanted) {
      replay_network(options, loaded, *model, network, statistic, sums);
    }
  }
  if (!statistic.flush() || !sums.flush()) {
    throw base::RunError("cannot write into " + folder.string());
  }
}

}  // namespace sluice::predictor
