#include "runner/arrivals.hpp"

#include "base/arrival_gaps.hpp"

namespace sluice::runner {

Arrivals::Arrivals(const Arrival& arrival, double sleep_s)
    : arrival_(arrival),
      sleep_ns_(static_cast<std::uint64_t>(sleep_s * 1e9)),
      random_(arrival.seed) {}

std::uint64_t Arrivals::next_ns(std::uint64_t now_ns) {
  const std::uint64_t index = count_++;
  switch (arrival_.kind) {
    case Arrival::Kind::kPeriodic: {
      const double shift = arrival_.jitter * base::uniform(random_);
      return static_cast<std::uint64_t>((static_cast<double>(index) + shift) * arrival_.period_ms *
                                        1e6);
    }
    case Arrival::Kind::kPoisson:
      poisson_ns_ += base::poisson_gap(random_) / arrival_.rate_per_s * 1e9;
      return static_cast<std::uint64_t>(poisson_ns_);
    case Arrival::Kind::kClosed:
      break;
  }
  return index == 0 ? now_ns : now_ns + sleep_ns_;
}

}  // namespace sluice::runner
