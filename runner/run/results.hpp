#pragma once
#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/experiment.hpp"
#include "runner/run/job_table.hpp"
#include "runner/run/places.hpp"
#include "runner/run/target_result.hpp"

namespace sluice::runner {

/// The figures of some jobs, in GPU time. NaN if there are no jobs.
struct JobFigures {
  std::uint64_t jobs = 0;
  double mean_ms = 0;
  double p50_ms = 0;
  double p99_ms = 0;
};

/// One model's figures.
struct ModelResult {
  std::string log;    ///< output_file_name.
  std::string model;  ///< The name in models_pid.json.
  pid_t pid = 0;
  int priority = 0;
  std::string policy;  ///< "unhooked" if the process runs without the interposer.
  bool on_cpu = false;
  JobFigures all;
  /// If there are models of higher priority: the jobs that overlapped one of theirs in time, and
  /// the other jobs.
  std::optional<JobFigures> collided;
  std::optional<JobFigures> uncollided;
  std::optional<TargetResult> target;
  double throughput_per_s = 0;  ///< Jobs per second from the first start to the last end.
  bool open_loop = false;
  std::uint64_t late_jobs = 0;
  double mean_queued_ms = 0;
  std::string died;  ///< How the worker ended early; empty if it did not.
  std::string log_file;
  JobTable table;  ///< The jobs behind the figures.
};

/// A run's figures.
struct RunResult {
  std::string configuration;
  std::string session;
  base::Gpus gpus;
  int device = 0;
  bool mps = false;        ///< Clients run on the GPU at the same time; else in turns.
  double duration_s = 0;   ///< Real time from the release of the workers to their end.
  std::string stopped_by;  ///< "time", "a signal" or "the end of all workers".
  std::vector<ModelResult> models;
};

/// The figures of one model, from its log files.
[[nodiscard]] ModelResult summarise(const Model& model, pid_t pid, double time_scale, bool on_cpu,
                                    const std::string& died);

/// Fills in `collided` and `uncollided`.
void split_by_collisions(std::vector<ModelResult>& models);

[[nodiscard]] std::string results_table(const RunResult& result);
[[nodiscard]] nlohmann::ordered_json results_json(const RunResult& result);
[[nodiscard]] std::string results_csv(const RunResult& result);

}  // namespace sluice::runner
