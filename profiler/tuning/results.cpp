#include "profiler/tuning/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "base/output.hpp"
#include "base/statistics.hpp"
#include "profiler/packs/knobs.hpp"

namespace sluice::profiler {
namespace {

namespace fs = std::filesystem;

/// The published columns.
constexpr std::array<std::size_t, 6> kPartialTrials{0, 100, 300, 500, 1000, 3000};

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "";
}

std::size_t most_trials(const std::vector<TunedTask>& tasks) {
  std::size_t most = 0;
  for (const TunedTask& task : tasks) most = std::max(most, task.trials.size());
  return most;
}

/// Opens a table to add lines to it; a new one gets the head.
std::ofstream table(const fs::path& file, const std::string& head) {
  const bool fresh = !fs::exists(file);
  std::ofstream lines(file, std::ios::app);
  if (fresh) lines << head << '\n';
  return lines;
}

}  // namespace

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
      const double cost = record.good_cost();
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
  std::ofstream lines = table(file, "modelname,tuner,0,100,300,500,1000,3000");
  lines << run.model << ',' << run.tuner;
  const std::size_t most = most_trials(tasks);
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

void add_latencies(const std::string& out, const RunName& run, const std::vector<TunedTask>& tasks,
                   const std::vector<TunedTask>& defaults, const std::vector<TunedTask>& both) {
  const fs::path file = fs::path(out) / "latency.csv";
  std::ofstream lines =
      table(file, "modelname,batchsize,target,device,tuner,seed,programs,trials,ms");
  const auto add = [&](const std::string& programs, std::size_t trials, const Latency& latency) {
    lines << fmt::format("{},{},{},{},{},{},{},{},{}\n", run.model, run.batch, run.target,
                         run.device, run.tuner, run.seed, programs, trials, number(latency.median));
  };
  const auto first = [](const TunedTask& task) { return task.first(); };
  const auto best_of = [](std::size_t trials) {
    return [trials](const TunedTask& task) { return task.best(trials); };
  };
  const std::size_t most = most_trials(tasks);
  add("tuned", 0, latency_of(tasks, first));
  for (std::size_t trials = 1; trials < most; trials *= 2) {
    add("tuned", trials, latency_of(tasks, best_of(trials)));
  }
  add("tuned", most, latency_of(tasks, best_of(most)));
  if (defaults.size() == tasks.size()) {
    add("tvm", 0, latency_of(defaults, first));
    add("both", most, latency_of(both, best_of(most + 1)));
  }
  if (!lines.flush()) throw base::RunError(file.string() + ": cannot be written");
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
