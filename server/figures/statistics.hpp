#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/metrics_text.hpp"
#include "server/service/service.hpp"

namespace sluice::server {

/// Counts of values by upper bounds, as Prometheus wants them. Not thread-safe.
class Histogram {
 public:
  explicit Histogram(std::vector<double> bounds)
      : bounds_(std::move(bounds)), counts_(bounds_.size() + 1) {}

  void add(double value) {
    std::size_t i = 0;
    while (i < bounds_.size() && value > bounds_[i]) ++i;
    ++counts_[i];
    sum_ += value;
    ++count_;
  }
  /// The samples of the family that was begun last.
  void write(base::MetricsText& out, const base::MetricsText::Labels& labels) const;
  [[nodiscard]] std::uint64_t count() const { return count_; }
  [[nodiscard]] double sum() const { return sum_; }

 private:
  std::vector<double> bounds_;
  std::vector<std::uint64_t> counts_;
  double sum_ = 0;
  std::uint64_t count_ = 0;
};

/// Bounds for times in seconds: 0.1 ms to 10 s.
[[nodiscard]] std::vector<double> second_bounds();
/// 1, 2, 4, ... to at least `max`.
[[nodiscard]] std::vector<double> power_bounds(std::size_t max);

/// The times of one request. CLOCK_MONOTONIC ns.
struct RequestTimes {
  std::uint64_t arrived_ns = 0;  ///< Its headers.
  std::uint64_t queued_ns = 0;   ///< Checked and queued.
  std::uint64_t begun_ns = 0;    ///< Its first block began; 0: it never did.
  std::uint64_t ended_ns = 0;
  std::uint64_t input_ns = 0;   ///< Duration of the copy of its batch's inputs.
  std::uint64_t blocks_ns = 0;  ///< Total duration of its blocks.
};

/// What a server counts for one model. Thread-safe.
class Statistics {
 public:
  explicit Statistics(std::size_t batch_size);

  void answered(Code code, std::size_t items, const RequestTimes& times);
  void executed(std::size_t items);
  /// Whether a model with this batch size can go on with these counts.
  [[nodiscard]] bool fits(std::size_t batch_size) const { return batch_size == batch_size_; }

  [[nodiscard]] ModelStatistics read() const;

  /// The families of /metrics, each with the samples of all models.
  using All = std::vector<std::pair<base::MetricsText::Labels, const Statistics*>>;
  static void write(base::MetricsText& out, const All& models);

 private:
  const std::size_t batch_size_;
  mutable std::mutex mutex_;
  ModelStatistics counts_;
  Histogram queue_;
  Histogram compute_;
  Histogram total_;
  Histogram batches_;
};

/// The word for a result in metrics and records, such as "ok" or "deadline_exceeded".
[[nodiscard]] std::string_view to_string(Code code);

}  // namespace sluice::server
