#include "runner/run/results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runner/run/job_table.hpp"
#include "runner/statistics.hpp"

namespace sluice::runner {
namespace {

constexpr std::uint64_t kFewJobs = 20;

std::string number(double value, int digits) {
  return std::isnan(value) ? "-" : fmt::format("{:.{}f}", value, digits);
}

/// JSON has no NaN; null says that there was nothing to measure.
nlohmann::ordered_json number_json(double value) {
  if (std::isnan(value)) return nullptr;
  return value;
}

std::string table_row(const ModelResult& model, std::size_t width) {
  std::string remark;
  if (model.open_loop) {
    remark =
        fmt::format("{} late, {:.3f} ms queued on average", model.late_jobs, model.mean_queued_ms);
  }
  if (!model.died.empty()) remark += (remark.empty() ? "" : "; ") + model.died;
  std::string row = fmt::format("{:<{}} {:>4}  {:<11} {:>6} {:>10} {:>10} {:>10} {:>9}  {}",
                                model.log, width, model.priority, model.policy, model.jobs,
                                number(model.mean_ms, 3), number(model.p50_ms, 3),
                                number(model.p99_ms, 3), number(model.throughput_per_s, 2), remark);
  row.erase(row.find_last_not_of(' ') + 1);
  return row + "\n";
}

/// What the figures do not say by themselves.
std::string remarks(const RunResult& result) {
  std::string text;
  if (result.stopped_by != "time") {
    text +=
        fmt::format("ended early, by {}, after {:.1f} s\n", result.stopped_by, result.duration_s);
  }
  const bool few = std::any_of(result.models.begin(), result.models.end(),
                               [](const ModelResult& model) { return model.jobs < kFewJobs; });
  if (few) {
    text += fmt::format(
        "fewer than {} jobs of a model: its p99 is little more than its slowest job (--duration)\n",
        kFewJobs);
  }
  if (result.gpus.simulated) {
    text += fmt::format("simulated: times are those of a simulated GPU, real time / {:g}\n",
                        result.gpus.time_scale);
  }
  return text;
}

}  // namespace

ModelResult summarise(const Model& model, pid_t pid, double time_scale, const std::string& died) {
  const bool open_loop = model.arrival.kind != Arrival::Kind::kClosed;
  const JobTable table = read_job_table(model.output_file(".csv"),
                                        open_loop ? model.output_file(".arrivals.csv") : "");
  ModelResult result;
  result.log = model.output_file_name;
  result.model = model.display_name();
  result.pid = pid;
  result.priority = model.priority;
  result.policy = model.control.hooked ? shm::to_string(model.control.policy) : "unhooked";
  result.jobs = table.jct_ms.size();
  result.mean_ms = mean(table.jct_ms);
  result.p50_ms = percentile(table.jct_ms, 0.5);
  result.p99_ms = percentile(table.jct_ms, 0.99);
  const double span_s = table.span_s / time_scale;
  result.throughput_per_s = span_s > 0 ? static_cast<double>(result.jobs) / span_s : std::nan("");
  result.open_loop = open_loop;
  result.late_jobs = table.late;
  result.mean_queued_ms = table.mean_queued_ms;
  result.died = died;
  result.log_file = model.output_file(".log");
  return result;
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
                 {"kind", result.gpus.simulated ? "simulated" : "real"}};
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
                                    {"jobs", model.jobs},
                                    {"mean_ms", number_json(model.mean_ms)},
                                    {"p50_ms", number_json(model.p50_ms)},
                                    {"p99_ms", number_json(model.p99_ms)},
                                    {"throughput_per_s", number_json(model.throughput_per_s)},
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
      "log,model,pid,priority,policy,jobs,mean_ms,p50_ms,p99_ms,throughput_per_s,simulated\n";
  for (const ModelResult& model : result.models) {
    text += fmt::format("{},{},{},{},{},{},{:.6f},{:.6f},{:.6f},{:.6f},{}\n", model.log,
                        model.model, model.pid, model.priority, model.policy, model.jobs,
                        model.mean_ms, model.p50_ms, model.p99_ms, model.throughput_per_s,
                        result.gpus.simulated ? 1 : 0);
  }
  return text;
}

}  // namespace sluice::runner
