#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "profiler/records/record.hpp"
#include "profiler/workers/program_server.hpp"

/// What the tuning of a network has found, and its files.
namespace sluice::profiler {

/// The trials of one task, and how often the network calls it.
struct TunedTask {
  std::string name;
  std::size_t weight = 1;
  std::vector<Record> trials{};

  /// The best of the first `count` trials; null if none of them is good.
  [[nodiscard]] const Record* best(std::size_t count) const;
  /// The first good trial: the program without tuning.
  [[nodiscard]] const Record* first() const;
};

/// The latency of a network as the sum of its tasks, in ms.
struct Latency {
  double mean = 0;
  double median = 0;
  double std = 0;
};
/// From the repeats of the records that `chosen` gives. Infinite if a task has none.
[[nodiscard]] Latency latency_of(const std::vector<TunedTask>& tasks,
                                 const std::function<const Record*(const TunedTask&)>& chosen);

/// The files of a tuned network below `out`, as published: op_costs/MODEL_TUNER_TARGET/I.csv for
/// each task, a line in partial_res/TARGET.csv, and the best records in Performance/.
struct RunName {
  std::string model;
  std::string tuner;
  std::string target;
  std::int64_t batch = 1;
  std::uint64_t seed = 0;
  std::string device{};
};
void write_op_costs(const std::string& out, const RunName& run,
                    const std::vector<TunedTask>& tasks);
void add_partial_result(const std::string& out, const RunName& run,
                        const std::vector<TunedTask>& tasks);
/// Adds lines to out/latency.csv: the latency after 0, 1, 2, 4 and so on trials of each task, after
/// all, that of `defaults` (TVM's own schedules) if each task has one, and that of the better of
/// both.
void add_latencies(const std::string& out, const RunName& run, const std::vector<TunedTask>& tasks,
                   const std::vector<TunedTask>& defaults, const std::vector<TunedTask>& both);
/// out/Performance/MODEL-TUNER-TARGET-autotvm.json: the best record of each task. With `.tmp`: all.
[[nodiscard]] std::string performance_file(const std::string& out, const RunName& run);
void write_best(const std::string& out, const RunName& run, const std::vector<TunedTask>& tasks);
/// out/Performance/MODEL-TUNER-TARGET-best.programs: a pack of the programs of `best`, a record for
/// each task of the network, made again with their sources. None for a task without a record.
/// Returns the name of the file.
std::string write_best_programs(const std::string& out, const RunName& run,
                                const ImportedNetwork& network, const std::string& target,
                                ProgramServer& server, const std::vector<const Record*>& best);

}  // namespace sluice::profiler
