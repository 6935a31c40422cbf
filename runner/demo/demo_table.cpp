#include "runner/demo/demo_table.hpp"

#include <fmt/format.h>

namespace sluice::runner {
namespace {

/// The part of its own throughput alone that the best-effort model kept.
double share_kept(const DemoTable& table, const ModelFigures& best_effort) {
  return best_effort.throughput_per_s / table.best_effort_alone.throughput_per_s;
}

std::string row_text(const DemoTable& table, const std::string& name, const ModelFigures& critical,
                     const ModelFigures& best_effort, const std::optional<HookCounts>& hooks) {
  const ModelFigures& alone = table.critical_alone;
  std::string text =
      fmt::format("{:<19} {:>8.3f} {:>8.3f} {:>7} {:>8.2f} {:>8.2f} | {:>8.1f} {:>6} {:>7.0f} %",
                  name, critical.p50_ms, critical.p99_ms, critical.jobs,
                  critical.p50_ms / alone.p50_ms, critical.p99_ms / alone.p99_ms,
                  best_effort.mean_ms, best_effort.jobs, 100 * share_kept(table, best_effort));
  if (hooks) {
    text += fmt::format(" {:>9} {:>8} {:>9}", hooks->launches, hooks->gated, hooks->bypassed);
  } else {
    text += fmt::format(" {:>9} {:>8} {:>9}", "-", "-", "-");
  }
  return text + "\n";
}

nlohmann::ordered_json figures_json(const ModelFigures& figures) {
  return {{"jobs", figures.jobs},
          {"mean_ms", figures.mean_ms},
          {"p50_ms", figures.p50_ms},
          {"p99_ms", figures.p99_ms},
          {"throughput_per_s", figures.throughput_per_s}};
}

}  // namespace

std::string demo_text(const DemoTable& table) {
  std::string text = describe_gpu(table.gpus, table.device) + "; time-sliced\n";
  text +=
      "critical: resnet50_b1 as one CUDA graph, about every 6 ms; best effort: resnet152_b256 back "
      "to back\n\n";
  text += fmt::format("{:<19} {:^43} | {}\n", "", "CRITICAL", "BEST EFFORT");
  text +=
      fmt::format("{:<19} {:>8} {:>8} {:>7} {:>8} {:>8} | {:>8} {:>6} {:>9} {:>9} {:>8} {:>9}\n",
                  "POLICY", "p50 ms", "p99 ms", "jobs", "p50 x", "p99 x", "job ms", "jobs", "kept",
                  "launches", "gated", "bypassed");
  text += row_text(table, "alone", table.critical_alone, table.best_effort_alone, std::nullopt);
  for (const DemoRow& row : table.rows) {
    const std::string name = row.policy + (row.notice_ms != 0 ? "+notice" : "");
    text += row_text(table, name, *row.result.critical, *row.result.best_effort, row.result.hooks);
  }
  text +=
      "\nx: times what it is alone. kept: throughput against alone. launches, gated, bypassed: of "
      "the\nbest-effort process, as the hooks counted them (under none, all are bypassed, by the "
      "policy).\nnotice: each critical job is announced 2 ms before it begins.\n";
  if (table.gpus.simulated) {
    text += fmt::format("SIMULATED: no NVIDIA GPU took part ({}). Times are real times / {:g}.\n",
                        table.gpus.why_simulated, table.gpus.time_scale);
  }
  return text;
}

nlohmann::ordered_json demo_json(const DemoTable& table) {
  nlohmann::ordered_json json;
  json["gpu"] = {{"index", table.device},
                 {"name", table.gpus.names.at(static_cast<std::size_t>(table.device))},
                 {"kind", table.gpus.simulated ? "simulated" : "real"}};
  json["sharing"] = "time-sliced";
  json["simulated"] = table.gpus.simulated;
  json["time_scale"] = table.gpus.time_scale;
  json["real_seconds_per_phase"] = table.seconds_per_phase;
  json["alone"] = {{"critical", figures_json(table.critical_alone)},
                   {"best_effort", figures_json(table.best_effort_alone)}};
  json["together"] = nlohmann::ordered_json::array();
  for (const DemoRow& row : table.rows) {
    const ModelFigures& critical = *row.result.critical;
    nlohmann::ordered_json entry = {
        {"policy", row.policy},
        {"notice_ms", row.notice_ms},
        {"critical", figures_json(critical)},
        {"critical_p50_times_alone", critical.p50_ms / table.critical_alone.p50_ms},
        {"critical_p99_times_alone", critical.p99_ms / table.critical_alone.p99_ms},
        {"best_effort", figures_json(*row.result.best_effort)},
        {"best_effort_share_kept", share_kept(table, *row.result.best_effort)}};
    if (row.result.hooks) {
      entry["best_effort_launches"] = row.result.hooks->launches;
      entry["best_effort_gated"] = row.result.hooks->gated;
      entry["best_effort_bypassed"] = row.result.hooks->bypassed;
    }
    json["together"].push_back(entry);
  }
  return json;
}

}  // namespace sluice::runner
