#include "server/figures/statistics.hpp"

#include <array>

#include "base/clock.hpp"

namespace sluice::server {
namespace {

double seconds(std::uint64_t ns) { return static_cast<double>(ns) / 1e9; }

void add(ModelStatistics::Duration& duration, std::uint64_t ns) {
  ++duration.count;
  duration.ns += ns;
}

}  // namespace

void Histogram::write(base::MetricsText& out, const base::MetricsText::Labels& labels) const {
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    auto with_bound = labels;
    with_bound.emplace_back("le",
                            i < bounds_.size() ? base::MetricsText::number(bounds_[i]) : "+Inf");
    out.sample("_bucket", with_bound, static_cast<double>(below));
  }
  out.sample("_sum", labels, sum_);
  out.sample("_count", labels, static_cast<double>(count_));
}

std::vector<double> second_bounds() {
  return {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
          0.05,   0.1,     0.25,   0.5,   1,      2.5,   5,    10};
}

std::vector<double> power_bounds(std::size_t max) {
  std::vector<double> bounds;
  for (std::size_t bound = 1; bounds.empty() || bounds.back() < static_cast<double>(max);
       bound *= 2)
    bounds.push_back(static_cast<double>(bound));
  return bounds;
}

std::string_view to_string(Code code) {
  constexpr std::array<std::string_view, static_cast<std::size_t>(Code::kInternal) + 1> kWords{
      "ok",
      "invalid_argument",
      "not_found",
      "unavailable",
      "resource_exhausted",
      "deadline_exceeded",
      "cancelled",
      "unimplemented",
      "unauthenticated",
      "permission_denied",
      "internal"};
  return kWords.at(static_cast<std::size_t>(code));
}

Statistics::Statistics(std::size_t batch_size)
    : batch_size_(batch_size),
      queue_(second_bounds()),
      compute_(second_bounds()),
      total_(second_bounds()),
      batches_(power_bounds(batch_size)) {}

void Statistics::answered(Code code, std::size_t items, const RequestTimes& times) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t total = times.ended_ns - times.arrived_ns;
  if (code != Code::kOk) {
    add(counts_.fail, total);
    return;
  }
  const std::uint64_t queue = times.begun_ns - times.queued_ns;
  const std::uint64_t compute = times.ended_ns - times.begun_ns;
  counts_.last_inference_ms = base::clock_ns(CLOCK_REALTIME) / 1'000'000;
  counts_.inference_count += items;
  add(counts_.success, total);
  add(counts_.queue, queue);
  add(counts_.compute_input, times.input_ns);
  add(counts_.compute_infer, times.blocks_ns);
  add(counts_.compute_output, 0);
  queue_.add(seconds(queue));
  compute_.add(seconds(compute));
  total_.add(seconds(total));
}

void Statistics::executed(std::size_t items) {
  const std::lock_guard lock(mutex_);
  ++counts_.execution_count;
  batches_.add(static_cast<double>(items));
}

ModelStatistics Statistics::read() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

void Statistics::write(base::MetricsText& out, const All& models) {
  const auto counter = [&](std::string_view name, std::string_view help, auto value) {
    out.family(name, "counter", help);
    for (const auto& [labels, statistics] : models) {
      out.sample(labels, static_cast<double>(value(statistics->read())));
    }
  };
  // Triton's names, for dashboards and alert rules that have them.
  using Counts = ModelStatistics;
  counter("nv_inference_request_success", "Requests with an answer.",
          [](const Counts& counts) { return counts.success.count; });
  counter("nv_inference_request_failure", "Requests of the model without an answer.",
          [](const Counts& counts) { return counts.fail.count; });
  counter("nv_inference_count", "Items.",
          [](const Counts& counts) { return counts.inference_count; });
  counter("nv_inference_exec_count", "Executions of a batch.",
          [](const Counts& counts) { return counts.execution_count; });
  counter("nv_inference_request_duration_us", "From the headers to the answer.",
          [](const Counts& counts) { return counts.success.ns / 1000; });
  counter("nv_inference_queue_duration_us", "In the queue.",
          [](const Counts& counts) { return counts.queue.ns / 1000; });
  counter("nv_inference_compute_input_duration_us", "Copies of inputs.",
          [](const Counts& counts) { return counts.compute_input.ns / 1000; });
  counter("nv_inference_compute_infer_duration_us", "Steps of the model.",
          [](const Counts& counts) { return counts.compute_infer.ns / 1000; });
  const auto histogram = [&](std::string_view name, std::string_view help,
                             Histogram Statistics::*which) {
    out.family(name, "histogram", help);
    for (const auto& [labels, statistics] : models) {
      const std::lock_guard lock(statistics->mutex_);
      (statistics->*which).write(out, labels);
    }
  };
  histogram("sluice_serve_queue_seconds", "Time of an answered request in the queue.",
            &Statistics::queue_);
  histogram("sluice_serve_compute_seconds",
            "Time from a request's first block to its answer, waits between blocks included.",
            &Statistics::compute_);
  histogram("sluice_serve_request_seconds", "Time from a request's headers to its answer.",
            &Statistics::total_);
  histogram("sluice_serve_batch_items", "Items of an execution.", &Statistics::batches_);
}

}  // namespace sluice::server
