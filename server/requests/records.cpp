#include "server/requests/records.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "base/json_text.hpp"

namespace sluice::server {
namespace {

double ms(std::uint64_t ns) { return static_cast<double>(ns) / 1e6; }

/// Milliseconds of CLOCK_REALTIME for a CLOCK_MONOTONIC time.
class RealTime {
 public:
  [[nodiscard]] double ms_at(std::uint64_t monotonic) const {
    return ms(real_ns_ - monotonic_ns_ + monotonic);
  }

 private:
  std::uint64_t monotonic_ns_ = base::monotonic_ns();
  std::uint64_t real_ns_ = base::clock_ns(CLOCK_REALTIME);
};

nlohmann::ordered_json record_of(const Execution& execution, const Pending& pending,
                                 const Status& status) {
  const RealTime real;
  const RequestTimes& times = pending.times;
  auto costs = nlohmann::ordered_json::array();
  auto runs = nlohmann::ordered_json::array();
  double execute = 0;
  for (const auto& [begin, end] : execution.runs) {
    costs.push_back(ms(end - begin));
    runs.push_back({real.ms_at(begin), real.ms_at(end)});
    execute += ms(end - begin);
  }
  const double total = ms(times.ended_ns - times.arrived_ns);
  const bool has_deadline = pending.deadline_ns != scheduler::kNoDeadline;
  nlohmann::ordered_json record{
      {"model_name", execution.model->config.name},
      {"recv_time", real.ms_at(times.arrived_ns)},
      {"queued_time", real.ms_at(times.queued_ns)},
      {"finish_time", real.ms_at(times.ended_ns)},
      {"total_cost_by_ms", total},
      {"child_model_execute_cost_by_ms", costs},
      {"child_model_run_time", runs},
      {"execute_cost", execute},
      {"wait_cost", total - execute},
      {"limit_cost_by_ms", ms(execution.model->limits.ns(pending.items))},
      {"id", pending.request.id},
      {"batch", execution.items},
      {"train_wait_ms", ms(execution.turn_wait_ns)},
      {"announced_us", static_cast<double>(pending.announced_ns) / 1e3},
      {"cold_ms", ms(execution.cold_ns)},
      {"result", to_string(status.code)},
      {"traceparent", pending.request.trace},
      {"deadline_ms", nullptr},
  };
  if (has_deadline) {
    record["deadline_ms"] =
        (static_cast<double>(pending.deadline_ns) - static_cast<double>(times.arrived_ns)) / 1e6;
  }
  return record;
}

}  // namespace

Records::Records(const std::string& file, std::string policy, std::string device)
    : file_(file, "sluice serve: the records"),
      policy_(std::move(policy)),
      device_(std::move(device)) {}

void Records::set_policy(std::string policy) {
  const std::lock_guard lock(mutex_);
  policy_ = std::move(policy);
}

void Records::write(const Execution& execution, const Pending& pending, const Status& status) {
  if (!file_.on()) return;
  const std::lock_guard lock(mutex_);
  auto record = record_of(execution, pending, status);
  const int gpu = execution.model->gpu();
  record["device"] = gpu == kNoGpu ? "cpu" : device_;
  record["gpu"] = gpu == kNoGpu ? nlohmann::ordered_json() : nlohmann::ordered_json(gpu);
  record["tag"] = policy_;
  // An id of a client may be any bytes.
  file_.write(base::json_text(record) + "\n");
}

void Records::reopen() {
  const std::lock_guard lock(mutex_);
  file_.reopen();
}

std::string batch_line(const Execution& execution, std::uint64_t output_ns, std::uint64_t now_ns) {
  const auto& instances = execution.model->instances;
  const auto found = std::find_if(instances.begin(), instances.end(), [&](const auto& instance) {
    return instance.get() == execution.instance;
  });
  std::string line = fmt::format(
      "[Inference]: {} (rank {}) set_input_ms={:.2f} infer_ms={:.2f} get_output_ms={:.2f}",
      execution.model->config.name,
      execution.model->first_rank + static_cast<std::size_t>(found - instances.begin()),
      ms(execution.input_ns), ms(execution.blocks_ns()), ms(output_ns));
  if (execution.turn_wait_ns > 0) {
    line += fmt::format(" wait_train_stop_ms={:.2f}", ms(execution.turn_wait_ns));
  }
  return line + fmt::format(" total_infer_ms={:.2f}", ms(now_ns - execution.begun_ns));
}

}  // namespace sluice::server
