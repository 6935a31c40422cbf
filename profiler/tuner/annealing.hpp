#pragma once
#include "profiler/tuner/tuner.hpp"

namespace sluice::profiler {

struct Annealing {
  std::size_t chains = 128;
  int steps = 500;
};

/// The unseen programs with the best ratings that chains of simulated annealing come across, at
/// most `count`, the best first. Half of the chains begin at the fastest of `trials`. `rate`:
/// larger is better; -infinity where the space refuses a program.
[[nodiscard]] std::vector<std::uint64_t> anneal(const ProgramSpace& space,
                                                const Annealing& annealing, const RateOf& rate,
                                                const std::vector<Trial>& trials,
                                                const Unseen& unseen, Random& random,
                                                std::size_t count);

}  // namespace sluice::profiler
