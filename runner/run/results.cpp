#include "runner/run/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/statistics.hpp"

namespace sluice::runner {
namespace {

constexpr std::uint64_t kFewJobs = 20;

std::string number(double value, int digits) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, digits);
}

/// JSON has no NaN; null means that there was nothing to measure.
nlohmann::ordered_json number_json(double value) {
  if (std::isnan(value)) return nullptr;
  return value;
}

std::string columns(const JobFigures& jobs) {
  return fmt::format("{:>6} {:>10} {:>10} {:>10}", jobs.jobs, number(jobs.mean_ms, 3),
                     number(jobs.p50_ms, 3), number(jobs.p99_ms, 3));
}

/// A row for a part of the model's jobs, indented, with the numbers in the columns of the model's
/// row.
std::string part_row(const char* part, const JobFigures& jobs, std::size_t width) {
  constexpr std::size_t kPriorityAndPolicy = 18;
  return fmt::format("{:<{}} {}\n", fmt::format("  {}", part), width + kPriorityAndPolicy,
                     columns(jobs));
}

std::string table_row(const ModelResult& model, std::size_t width) {
  std::string remark;
  if (model.open_loop) {
    remark =
        fmt::format("{} late, {:.3f} ms queued on average", model.late_jobs, model.mean_queued_ms);
  }
  if (model.on_cpu) remark += (remark.empty() ? "" : "; ") + std::string("on the CPU, not gated");
  if (!model.died.empty()) remark += (remark.empty() ? "" : "; ") + model.died;
  std::string row =
      fmt::format("{:<{}} {:>4}  {:<11} {} {:>9}  {}", model.log, width, model.priority,
                  model.policy, columns(model.all), number(model.throughput_per_s, 2), remark);
  row.erase(row.find_last_not_of(' ') + 1);
  row += "\n";
  if (model.target) row += "  " + target_text(*model.target) + "\n";
  if (model.collided) row += part_row("collided", *model.collided, width);
  if (model.uncollided) row += part_row("uncollided", *model.uncollided, width);
  return row;
}

/// Lines below the table that explain its figures.
std::string remarks(const RunResult& result) {
  std::string text;
  if (result.stopped_by != "time") {
    text +=
        fmt::format("ended early, by {}, after {:.1f} s\n", result.stopped_by, result.duration_s);
  }
  std::string none;
  for (const ModelResult& model : result.models) {
    if (model.all.jobs == 0 && model.died.empty()) none += (none.empty() ? "" : ", ") + model.log;
  }
  if (!none.empty()) {
    text += fmt::format("no job of {} ended in {:.3g} s: run longer (--duration)\n", none,
                        result.duration_s);
  }
  const bool few = std::any_of(
      result.models.begin(), result.models.end(),
      [](const ModelResult& model) { return model.all.jobs > 0 && model.all.jobs < kFewJobs; });
  if (few) {
    text += fmt::format(
        "a model has fewer than {} jobs, so its p99 is close to its slowest job (--duration)\n",
        kFewJobs);
  }
  const bool split = std::any_of(result.models.begin(), result.models.end(),
                                 [](const ModelResult& model) { return model.collided; });
  if (split) text += "collided: jobs that overlapped one of a model of higher priority\n";
  const bool simulated =
      result.gpus.simulated && !std::all_of(result.models.begin(), result.models.end(),
                                            [](const ModelResult& model) { return model.on_cpu; });
  if (simulated) {
    text += fmt::format("simulated: all times are times of a simulated GPU, real time / {:g}\n",
                        result.gpus.time_scale);
  }
  return text;
}

JobFigures figures(const std::vector<double>& jct_ms) {
  return {jct_ms.size(), base::mean(jct_ms), base::percentile(jct_ms, 0.5),
          base::percentile(jct_ms, 0.99)};
}

/// Null if there is no model of higher priority.
nlohmann::ordered_json part_json(const std::optional<JobFigures>& part) {
  if (!part) return nullptr;
  return {{"jobs", part->jobs},
          {"mean_ms", number_json(part->mean_ms)},
          {"p50_ms", number_json(part->p50_ms)},
          {"p99_ms", number_json(part->p99_ms)}};
}

/// Four columns, empty if there is no such part.
std::string part_csv(const std::optional<JobFigures>& part) {
  if (!part) return ",,,";
  return fmt::format("{},{:.6f},{:.6f},{:.6f}", part->jobs, part->mean_ms, part->p50_ms,
                     part->p99_ms);
}

/// Four columns, empty where a figure is unknown.
std::string target_csv(const std::optional<TargetResult>& target) {
  if (!target) return ",,,";
  const auto known = [](double value) {
    return std::isnan(value) ? "" : fmt::format("{:.6f}", value);
  };
  return fmt::format("{},{},{},{}", target->text, known(target->limit_ms),
                     known(target->in_time_share()), known(target->open_share));
}

}  // namespace

ModelResult summarise(const Model& model, pid_t pid, double time_scale, bool on_cpu,
                      const std::string& died) {
  const bool open_loop = model.arrival.kind != Arrival::Kind::kClosed;
  ModelResult result;
  result.table = read_job_table(model.output_file(".csv"),
                                open_loop ? model.output_file(".arrivals.csv") : "");
  const JobTable& table = result.table;
  result.log = model.output_file_name;
  result.model = model.display_name();
  result.pid = pid;
  result.priority = model.priority;
  const bool hooked = model.control.hooked && !on_cpu;
  result.policy = hooked ? shm::to_string(model.control.policy) : "unhooked";
  result.on_cpu = on_cpu;
  result.all = figures(table.jct_ms);
  const double span_s = table.span_s / time_scale;
  result.throughput_per_s =
      span_s > 0 ? static_cast<double>(result.all.jobs) / span_s : std::nan("");
  result.open_loop = open_loop;
  result.late_jobs = table.late;
  result.mean_queued_ms = table.mean_queued_ms;
  result.died = died;
  result.log_file = model.output_file(".log");
  return result;
}

void split_by_collisions(std::vector<ModelResult>& models) {
  for (ModelResult& model : models) {
    std::vector<JobSpan> others;
    bool outranked = false;
    for (const ModelResult& other : models) {
      if (other.priority <= model.priority) continue;
      outranked = true;
      others.insert(others.end(), other.table.spans.begin(), other.table.spans.end());
    }
    if (!outranked) continue;
    const std::vector<bool> hit = collisions(model.table.spans, std::move(others));
    std::vector<double> with;
    std::vector<double> without;
    for (std::size_t i = 0; i < hit.size(); ++i) {
      (hit[i] ? with : without).push_back(model.table.jct_ms[i]);
    }
    model.collided = figures(with);
    model.uncollided = figures(without);
  }
}

std::string results_table(const RunResult& result) {
  std::size_t width = 5;
  for (const ModelResult& model : result.models) width = std::max(width, model.log.size());
  std::string text =
      fmt::format("{:<{}} {:>4}  {:<11} {:>6} {:>10} {:>10} {:>10} {:>9}\n", "MODEL", width, "PRIO",
                  "POLICY", "JOBS", "MEAN ms", "P50 ms", "P99 ms", "JOBS/s");
  for (const ModelResult& model : result.models) text += table_row(model, width);
  return text + remarks(result);
}

nlohmann::ordered_json results_json(const RunResult& result) {
  nlohmann::ordered_json json;
  json["configuration"] = result.configuration;
  json["session"] = result.session;
  json["gpu"] = {{"index", result.device},
                 {"name", result.gpus.names.at(static_cast<std::size_t>(result.device))},
                 {"kind", result.gpus.simulated ? "simulated" : "real"},
                 {"sharing", result.mps ? "MPS" : "time-sliced"}};
  json["simulated"] = result.gpus.simulated;
  json["time_scale"] = result.gpus.time_scale;
  json["real_duration_s"] = result.duration_s;
  json["stopped_by"] = result.stopped_by;
  json["models"] = nlohmann::ordered_json::array();
  for (const ModelResult& model : result.models) {
    nlohmann::ordered_json entry = {{"log", model.log},
                                    {"model", model.model},
                                    {"pid", model.pid},
                                    {"priority", model.priority},
                                    {"policy", model.policy},
                                    {"on_cpu", model.on_cpu},
                                    {"jobs", model.all.jobs},
                                    {"mean_ms", number_json(model.all.mean_ms)},
                                    {"p50_ms", number_json(model.all.p50_ms)},
                                    {"p99_ms", number_json(model.all.p99_ms)},
                                    {"throughput_per_s", number_json(model.throughput_per_s)},
                                    {"target", target_json(model.target)},
                                    {"collided", part_json(model.collided)},
                                    {"uncollided", part_json(model.uncollided)},
                                    {"late_jobs", nullptr},
                                    {"mean_queued_ms", nullptr},
                                    {"died", nullptr},
                                    {"log_file", model.log_file}};
    if (model.open_loop) {
      entry["late_jobs"] = model.late_jobs;
      entry["mean_queued_ms"] = number_json(model.mean_queued_ms);
    }
    if (!model.died.empty()) entry["died"] = model.died;
    json["models"].push_back(entry);
  }
  return json;
}

std::string results_csv(const RunResult& result) {
  std::string text =
      "log,model,pid,priority,policy,jobs,mean_ms,p50_ms,p99_ms,throughput_per_s,simulated,on_cpu,"
      "collided_jobs,collided_mean_ms,collided_p50_ms,collided_p99_ms,"
      "uncollided_jobs,uncollided_mean_ms,uncollided_p50_ms,uncollided_p99_ms,"
      "target,target_limit_ms,target_in_time_share,target_open_share\n";
  for (const ModelResult& model : result.models) {
    text +=
        fmt::format("{},{},{},{},{},{},{:.6f},{:.6f},{:.6f},{:.6f},{:d},{:d},{},{},{}\n", model.log,
                    model.model, model.pid, model.priority, model.policy, model.all.jobs,
                    model.all.mean_ms, model.all.p50_ms, model.all.p99_ms, model.throughput_per_s,
                    result.gpus.simulated && !model.on_cpu, model.on_cpu, part_csv(model.collided),
                    part_csv(model.uncollided), target_csv(model.target));
  }
  return text;
}

}  // namespace sluice::runner
