#pragma once
#include <cstdint>
#include <optional>
#include <random>

#include "runner/experiment.hpp"

namespace sluice::runner {

/// When the jobs of one model are due, in ns of the GPU's time after the start of the run.
class Arrivals {
 public:
  Arrivals(const Arrival& arrival, double sleep_s);

  /// Whether jobs come on a schedule that does not wait for them.
  [[nodiscard]] bool open_loop() const { return arrival_.kind != Arrival::Kind::kClosed; }

  /// When the next job is due: on the schedule, or `sleep_time` after `now_ns` in a closed loop
  /// (the first one at once).
  [[nodiscard]] std::uint64_t next_ns(std::uint64_t now_ns);

 private:
  Arrival arrival_;
  std::uint64_t sleep_ns_;
  std::mt19937_64 random_;
  std::uint64_t count_ = 0;
  double poisson_ns_ = 0;
};

}  // namespace sluice::runner
