#pragma once
#include <cstdint>
#include <optional>
#include <random>

#include "runner/experiment.hpp"

namespace sluice::runner {

/// The arrival times of one model's jobs, in ns of GPU time after the start of the run.
class Arrivals {
 public:
  Arrivals(const Arrival& arrival, double sleep_s);

  /// Whether jobs arrive on a schedule that does not wait for earlier jobs.
  [[nodiscard]] bool open_loop() const { return arrival_.kind != Arrival::Kind::kClosed; }

  /// The time at which the next job is due. In a closed loop that is `sleep_time` after `now_ns`,
  /// and the first job is due at once.
  [[nodiscard]] std::uint64_t next_ns(std::uint64_t now_ns);

 private:
  Arrival arrival_;
  std::uint64_t sleep_ns_;
  std::mt19937_64 random_;
  std::uint64_t count_ = 0;
  double poisson_ns_ = 0;
};

}  // namespace sluice::runner
