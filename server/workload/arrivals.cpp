#include "server/workload/arrivals.hpp"

#include <fmt/format.h>

#include <memory>
#include <random>
#include <stdexcept>

#include "base/arrival_gaps.hpp"

namespace sluice::server::workload {
namespace {

constexpr double kNsPerMs = 1e6;
constexpr std::uint64_t kTickNs = 10'000'000;
constexpr double kTicksPerS = 100;

class Ticks {
 public:
  Ticks(Steps<double> rate_per_s, std::uint32_t seed)
      : rate_per_s_(std::move(rate_per_s)), random_(seed) {}

  std::optional<std::uint64_t> next() {
    while (left_ == 0) {
      ++tick_;
      const double now_s = static_cast<double>(tick_) / kTicksPerS;
      const double rate = rate_per_s_.at(now_s);
      if (rate > 0) {
        left_ = std::poisson_distribution<std::uint64_t>(rate / kTicksPerS)(random_);
      } else if (rate_per_s_.change_s.empty() || now_s >= rate_per_s_.change_s.back()) {
        return std::nullopt;
      }
    }
    --left_;
    return static_cast<std::uint64_t>(tick_) * kTickNs;
  }

 private:
  Steps<double> rate_per_s_;
  std::mt19937 random_;
  std::int64_t tick_ = -1;
  std::uint64_t left_ = 0;
};

DueTimes near_periodic(double mean_ms, std::uint32_t seed) {
  auto gaps = std::make_shared<base::NearPeriodicGaps>(mean_ms, seed);
  return [gaps, at_ms = std::uint64_t{0}]() mutable -> std::optional<std::uint64_t> {
    at_ms += gaps->next_ms();
    return at_ms * static_cast<std::uint64_t>(kNsPerMs);
  };
}

DueTimes poisson(double mean_ms, std::uint32_t seed) {
  auto random = std::make_shared<std::mt19937_64>(seed);
  return [random, mean_ms, at_ms = 0.0]() mutable -> std::optional<std::uint64_t> {
    at_ms += base::poisson_gap(*random) * mean_ms;
    return static_cast<std::uint64_t>(at_ms * kNsPerMs);
  };
}

DueTimes replay(const std::vector<std::uint64_t>& due_ns) {
  return [due_ns, next = std::size_t{0}]() mutable -> std::optional<std::uint64_t> {
    if (next == due_ns.size()) return std::nullopt;
    return due_ns[next++];
  };
}

}  // namespace

std::string describe(const Law& law) {
  struct Describe {
    std::string operator()(const ClosedLoop& closed) const {
      if (closed.interval_ms > 0) return fmt::format("closed loop, {} ms", closed.interval_ms);
      return "closed loop";
    }
    std::string operator()(const TickedPoisson&) const { return "Poisson in 10 ms ticks"; }
    std::string operator()(const NearPeriodic& law) const {
      return fmt::format("nearly periodic, {} ms", law.mean_ms);
    }
    std::string operator()(const Poisson& law) const {
      return fmt::format("Poisson, {} ms", law.mean_ms);
    }
    std::string operator()(const Replay&) const { return "replay"; }
  };
  return std::visit(Describe{}, law);
}

DueTimes due_times(const Law& law, std::uint32_t index, std::uint32_t seed) {
  // With the default seed of 0, the seeds of the published request scheduler's client.
  seed += index * 100 + 100;
  if (const auto* ticked = std::get_if<TickedPoisson>(&law)) {
    auto ticks = std::make_shared<Ticks>(ticked->rate_per_s, seed);
    return [ticks] { return ticks->next(); };
  }
  if (const auto* near = std::get_if<NearPeriodic>(&law)) return near_periodic(near->mean_ms, seed);
  if (const auto* exact = std::get_if<Poisson>(&law)) return poisson(exact->mean_ms, seed);
  if (const auto* recorded = std::get_if<Replay>(&law)) return replay(recorded->due_ns);
  throw std::logic_error("a closed loop has no due times");
}

}  // namespace sluice::server::workload
