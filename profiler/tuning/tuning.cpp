#include "profiler/tuning/tuning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "base/line_file.hpp"
#include "base/statistics.hpp"
#include "profiler/knobs.hpp"

namespace sluice::profiler {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBatch = 64;
/// Times the programs made. Of the random programs of a convolution for a GPU, TVM refuses 85 to
/// 98 %.
constexpr std::size_t kMostRefused = 100;
constexpr std::array<std::size_t, 6> kPartialTrials{0, 100, 300, 500, 1000, 3000};

double cost_of(const Record& record) { return record.good() ? record.cost() : INFINITY; }

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "";
}

class TaskTuning {
 public:
  TaskTuning(const Task& task, const TuningOptions& options, const TuningCalls& calls,
             const KnownRecords& known)
      : options_(options),
        calls_(calls),
        known_(known),
        space_(task.sketches),
        tuner_(make_tuner(options.tuner, {.space = space_,
                                          .seed = options.seed,
                                          .features = calls.features,
                                          .predicted = calls.predicted})) {}

  std::vector<Record> run(const OnRecord& on_record) {
    while (records_.size() < options_.trials && (more_ || !made_.empty())) {
      const std::size_t wanted = std::min(kBatch, options_.trials - records_.size());
      // A whole round is compiled at once: so the slowest compilation is waited for once.
      while (more_ && made_.size() < wanted) make_some(wanted);
      measure_round(wanted, on_record);
      tuner_->learn(trials_);
      trials_.clear();
    }
    return std::move(records_);
  }

 private:
  void make_some(std::size_t wanted) {
    // As many as it takes if the space goes on to refuse as many.
    const std::size_t good = records_.size() + made_.size() + 1;
    const std::size_t missing = wanted - made_.size();
    const auto indices =
        tuner_->propose(std::min(kBatch, (missing * (good + refused_) + good - 1) / good));
    const auto programs = make(indices);
    for (std::size_t i = 0; i < programs.size(); ++i) {
      if (programs[i]) {
        made_.push_back(*programs[i]);
      } else {
        trials_.push_back({indices[i], INFINITY});
        ++refused_;
      }
    }
    // Looking at an index takes up to seconds: a space without programs must not take days.
    const std::size_t hoped = std::min(options_.trials, records_.size() + made_.size() + kBatch);
    more_ = !indices.empty() && refused_ < kMostRefused * hoped;
  }

  /// Of a known program only the index.
  [[nodiscard]] std::vector<std::optional<Program>> make(
      const std::vector<std::uint64_t>& indices) const {
    std::vector<std::uint64_t> unknown;
    for (const std::uint64_t index : indices) {
      if (!known_.contains(index)) unknown.push_back(index);
    }
    auto made = calls_.make(unknown);
    std::vector<std::optional<Program>> programs;
    std::size_t at = 0;
    for (const std::uint64_t index : indices) {
      if (known_.contains(index)) {
        programs.emplace_back(Program{})->index = index;
      } else {
        programs.push_back(std::move(made[at++]));
      }
    }
    return programs;
  }

  void measure_round(std::size_t wanted, const OnRecord& on_record) {
    const auto end = made_.begin() + static_cast<long>(std::min(wanted, made_.size()));
    std::vector<std::uint64_t> indices;
    std::vector<Program> unknown;
    for (auto program = made_.begin(); program != end; ++program) {
      indices.push_back(program->index);
      if (!known_.contains(program->index)) unknown.push_back(std::move(*program));
    }
    made_.erase(made_.begin(), end);
    std::vector<Record> measured = calls_.measure(std::move(unknown), on_record);
    std::size_t at = 0;
    for (const std::uint64_t index : indices) {
      const auto known = known_.find(index);
      const Record& record =
          records_.emplace_back(known == known_.end() ? std::move(measured[at++]) : known->second);
      // A disturbed time says nothing of the program, neither good nor bad.
      if (record.details && record.details->disturbed) continue;
      trials_.push_back({record.index, cost_of(record)});
    }
  }

  const TuningOptions& options_;
  const TuningCalls& calls_;
  const KnownRecords& known_;
  ProgramSpace space_;
  std::unique_ptr<Tuner> tuner_;
  std::vector<Record> records_;
  std::vector<Program> made_;  ///< And not measured yet.
  std::vector<Trial> trials_;  ///< That the tuner has not learned from.
  std::size_t refused_ = 0;
  bool more_ = true;
};

}  // namespace

std::vector<Record> tune_task(const Task& task, const TuningOptions& options,
                              const TuningCalls& calls, const KnownRecords& known,
                              const OnRecord& on_record) {
  return TaskTuning(task, options, calls, known).run(on_record);
}

const Record* TunedTask::best(std::size_t count) const {
  const Record* best = nullptr;
  for (std::size_t i = 0; i < std::min(count, trials.size()); ++i) {
    if (!trials[i].good()) continue;
    if (best == nullptr || trials[i].cost() < best->cost()) best = &trials[i];
  }
  return best;
}

const Record* TunedTask::first() const {
  const auto found = std::ranges::find_if(trials, &Record::good);
  return found == trials.end() ? nullptr : &*found;
}

Latency latency_of(const std::vector<TunedTask>& tasks,
                   const std::function<const Record*(const TunedTask&)>& chosen) {
  std::vector<double> sums;
  for (const TunedTask& task : tasks) {
    const Record* const record = chosen(task);
    if (record == nullptr) return {INFINITY, INFINITY, INFINITY};
    if (sums.empty()) sums.resize(record->seconds.size());
    for (std::size_t i = 0; i < std::min(sums.size(), record->seconds.size()); ++i) {
      sums[i] += record->seconds[i] * 1e3 * static_cast<double>(task.weight);
    }
  }
  Latency latency{base::mean(sums), base::percentile(sums, 0.5), 0};
  for (const double sum : sums) {
    latency.std += std::pow(sum - latency.mean, 2) / static_cast<double>(sums.size());
  }
  latency.std = std::sqrt(latency.std);
  return latency;
}

void write_op_costs(const std::string& out, const RunName& run,
                    const std::vector<TunedTask>& tasks) {
  const fs::path folder =
      fs::path(out) / "op_costs" / fmt::format("{}_{}_{}", run.model, run.tuner, run.target);
  fs::create_directories(folder);
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    base::LineFile file(folder / fmt::format("{}.csv", i));
    file.write("task_name,trial,costs,all_cost,best_cost,best_all_cost,cmp\n");
    double best = INFINITY;
    double best_all = INFINITY;
    for (std::size_t trial = 0; trial < tasks[i].trials.size(); ++trial) {
      const Record& record = tasks[i].trials[trial];
      const double cost = cost_of(record);
      const bool better = cost < best;
      best = std::min(best, cost);
      if (better) best_all = record.all_cost;
      file.write(fmt::format("{},{},{},{},{},{},{}\n", tasks[i].name, trial, number(cost),
                             number(record.all_cost), number(best), number(best_all),
                             better ? 1 : 0));
    }
  }
}

void add_partial_result(const std::string& out, const RunName& run,
                        const std::vector<TunedTask>& tasks) {
  const fs::path folder = fs::path(out) / "partial_res";
  fs::create_directories(folder);
  const fs::path file = folder / (run.target + ".csv");
  const bool fresh = !fs::exists(file);
  std::ofstream lines(file, std::ios::app);
  if (fresh) lines << "modelname,tuner,0,100,300,500,1000,3000\n";
  lines << run.model << ',' << run.tuner;
  std::size_t most = 0;
  for (const TunedTask& task : tasks) most = std::max(most, task.trials.size());
  for (const std::size_t trials : kPartialTrials) {
    const Latency latency = latency_of(tasks, [&](const TunedTask& task) {
      return trials == 0 ? task.first() : task.best(trials);
    });
    // No figure for more trials than there were.
    lines << ',' << (trials <= most ? number(latency.median) : "");
  }
  lines << '\n' << std::flush;
  if (!lines) throw base::RunError(file.string() + ": cannot be written");
}

std::string performance_file(const std::string& out, const RunName& run) {
  const fs::path folder = fs::path(out) / "Performance";
  fs::create_directories(folder);
  return folder / fmt::format("{}-{}-{}-autotvm.json", run.model, run.tuner, run.target);
}

void write_best(const std::string& out, const RunName& run, const std::vector<TunedTask>& tasks) {
  base::LineFile file(performance_file(out, run));
  for (const TunedTask& task : tasks) {
    if (const Record* best = task.best(task.trials.size())) file.write(to_line(*best) + '\n');
  }
}

std::string write_best_programs(const std::string& out, const RunName& run,
                                const ImportedNetwork& network, const std::string& target,
                                ProgramServer& server, const std::vector<const Record*>& best) {
  const std::string file =
      fmt::format("{}/Performance/{}-{}-{}-best.programs", out, run.model, run.tuner, run.target);
  PackWriter pack(file);
  pack.add(PackHeader{target, server.tvm(), "", 0});
  pack.add(network.network);
  for (std::size_t i = 0; i < network.tasks.size(); ++i) {
    const Task& task = network.tasks[i];
    pack.add(task);
    if (best[i] == nullptr) continue;
    const bool own = best[i]->index >= ProgramSpace(task.sketches).size();
    const auto program = own ? server.default_program(task.id)
                             : server.apply(task.id, {best[i]->index}, {"source", "features"})[0];
    if (program) pack.add(*program);
  }
  pack.close();
  return file;
}

}  // namespace sluice::profiler
