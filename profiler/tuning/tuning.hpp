#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "profiler/program_server.hpp"
#include "profiler/record.hpp"
#include "profiler/tuner/tuners.hpp"

/// Tunes the tasks of a network: a tuner chooses programs, and somebody measures them.
namespace sluice::profiler {

using OnRecord = std::function<void(const Record&)>;

/// What tune_task() calls; TaskMeasuring has it all.
struct TuningCalls {
  /// Programs of the task; nothing where the space refuses the index.
  std::function<std::vector<std::optional<Program>>(const std::vector<std::uint64_t>&)> make;
  /// A record for each program, in this order. Also hands over each as soon as all before it are
  /// there.
  std::function<std::vector<Record>(std::vector<Program>, const OnRecord&)> measure;
  FeaturesOf features{};
  RateOf predicted{};
};

struct TuningOptions {
  std::string tuner = "xgb";
  std::size_t trials = 3000;  ///< Programs of each task; an index that is refused is no trial.
  std::uint64_t seed = 0;
};

/// Records of an earlier run, by the index of their program.
using KnownRecords = std::map<std::uint64_t, Record>;

/// Tunes one task. Returns the records in the order of the trials; also calls `on_record` for each
/// that is not in `known`, which is not made and measured again. They are fewer than wanted if the
/// space has no more, or refuses nearly all indices.
[[nodiscard]] std::vector<Record> tune_task(const Task& task, const TuningOptions& options,
                                            const TuningCalls& calls, const KnownRecords& known,
                                            const OnRecord& on_record);

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
};
void write_op_costs(const std::string& out, const RunName& run,
                    const std::vector<TunedTask>& tasks);
void add_partial_result(const std::string& out, const RunName& run,
                        const std::vector<TunedTask>& tasks);
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
