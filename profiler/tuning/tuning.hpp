#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "profiler/records/record.hpp"
#include "profiler/tuner/tuners.hpp"
#include "profiler/workers/program_server.hpp"

/// Tunes one task: a tuner chooses programs, and somebody measures them.
namespace sluice::profiler {

using OnRecord = std::function<void(const Record&)>;

/// What tune_task() calls; TaskMeasuring has it all.
struct TuningCalls {
  /// Programs of the task; nothing where the space refuses the index.
  std::function<std::vector<std::optional<Program>>(const std::vector<std::uint64_t>&)> make;
  /// A record for each program, in this order. Also hands over each as soon as it is there, in any
  /// order.
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

}  // namespace sluice::profiler
