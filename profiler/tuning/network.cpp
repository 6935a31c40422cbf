#include "profiler/tuning/network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/clock.hpp"
#include "profiler/workers/predictor_pipe.hpp"

namespace sluice::profiler {
namespace {

/// A line of progress every ten seconds.
class Progress {
 public:
  explicit Progress(std::string task) : task_(std::move(task)) {}

  void add(const Record& record) {
    ++trials_;
    if (record.good()) best_ = std::min(best_, record.cost());
    if (base::seconds_since(said_ns_) < kEveryS) return;
    said_ns_ = base::monotonic_ns();
    fmt::print(stderr, "{}: {} trials so far, best {:.6g} ms\n", task_, trials_, best_ * 1e3);
  }

 private:
  static constexpr double kEveryS = 10;

  std::string task_;
  std::size_t trials_ = 0;
  double best_ = INFINITY;
  std::uint64_t said_ns_ = base::monotonic_ns();
};

}  // namespace

std::vector<TunedTask> TunedNetwork::both() const {
  std::vector<TunedTask> both = tasks;
  for (TunedTask& task : both) {
    const auto own = std::ranges::find(defaults, task.name, &TunedTask::name);
    if (own == defaults.end()) continue;
    task.trials.insert(task.trials.end(), own->trials.begin(), own->trials.end());
  }
  return both;
}

std::map<std::string, KnownRecords> known_records(const std::string& file,
                                                  const std::string& device) {
  std::map<std::string, KnownRecords> known;
  for (Record& record : read_records(file).records) {
    if (!record.details || record.disturbed() || record.details->device != device) continue;
    const std::string task = record.details->task;
    known[task][record.index] = std::move(record);
  }
  return known;
}

TunedNetwork tune_network(const NetworkTuning& options, const ImportedNetwork& imported,
                          TaskMeasuring& measuring, std::map<std::string, KnownRecords> known,
                          RecordFile& all) {
  std::optional<PredictorPipe> predictor;
  if (options.tuning.tuner == "predict") {
    const std::string& named = options.predictor_device;
    predictor.emplace(options.predictor, named.empty() ? measuring.device() : named);
  }
  TunedNetwork network;
  for (const Task& task : imported.tasks) {
    const std::size_t weight = imported.weight(task.id);
    measuring.begin(task);
    if (options.compare) {
      if (auto record = measuring.measure_default(task)) {
        network.defaults.push_back({task.name, weight, {std::move(*record)}});
      }
    }
    const TuningCalls calls{
        .make = [&](const auto& indices) { return measuring.make(indices); },
        .measure =
            [&](auto programs, const OnRecord& on_record) {
              return measuring.measure(task, std::move(programs), on_record);
            },
        .features = [&](const auto& indices) { return measuring.features(indices); },
        .predicted =
            [&](const auto& indices) {
              return predictor.value().rate(task, measuring.described(indices));
            }};
    TunedTask& tuned = network.tasks.emplace_back(TunedTask{task.name, weight, {}});
    const std::string which =
        fmt::format("[{}/{}] {}", network.tasks.size(), imported.tasks.size(), task.name);
    Progress progress(which);
    tuned.trials =
        tune_task(task, options.tuning, calls, known[task.id], [&](const Record& record) {
          all.add(record);
          progress.add(record);
        });
    const Record* const best = tuned.best(tuned.trials.size());
    fmt::print(stderr, "{}: {} trials, best {}\n", which, tuned.trials.size(),
               best == nullptr ? "none" : fmt::format("{:.6g} ms", best->cost() * 1e3));
  }
  return network;
}

}  // namespace sluice::profiler
