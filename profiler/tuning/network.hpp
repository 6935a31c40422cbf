#pragma once
#include <map>
#include <string>
#include <vector>

#include "profiler/tuning/measuring.hpp"
#include "profiler/tuning/results.hpp"
#include "profiler/tuning/tuning.hpp"

/// Tunes the tasks of a network one after the other.
namespace sluice::profiler {

struct NetworkTuning {
  TuningOptions tuning;
  bool compare = true;  ///< Also measure TVM's own schedules.
  std::string predictor{};
  std::string predictor_device{};  ///< Empty: the measured one.
};

struct TunedNetwork {
  std::vector<TunedTask> tasks;
  std::vector<TunedTask> defaults{};  ///< TVM's own schedules, of the tasks that have one.

  /// The tasks, with TVM's own schedules as further trials.
  [[nodiscard]] std::vector<TunedTask> both() const;
};

/// The records of a file for a device by task, without disturbed ones. Empty if there is no file.
[[nodiscard]] std::map<std::string, KnownRecords> known_records(const std::string& file,
                                                                const std::string& device);

/// Adds each record to `all` at once, and prints progress on standard error.
[[nodiscard]] TunedNetwork tune_network(const NetworkTuning& options,
                                        const ImportedNetwork& imported, TaskMeasuring& measuring,
                                        std::map<std::string, KnownRecords> known, RecordFile& all);

}  // namespace sluice::profiler
