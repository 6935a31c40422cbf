// Programs that are never idle, in virtual time: their period, noise, drift and neighbours are
// known.
#pragma once
#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "intercept/jobs/step_law.hpp"

namespace sluice::intercept::test {

inline constexpr double kMs = 1e6;

/// A program and what windows cost it. Times are ms.
struct Program {
  double step = 20;
  double other = 0;      ///< Every other step is of a graph of its own that takes so long; 0: none.
  double noise = 0.02;   ///< Sigma of the logarithm.
  double price = 1;      ///< What a step is lengthened by, for each ms of a window.
  double overrun = 0.3;  ///< And for each window: the kernel that still runs, two switches.
  double spill = 0;      ///< Part of the cost that shows in the step after it.
  double drift = 0;      ///< Amplitude of the change of `step` over 4,000 steps.
  double jump = 1;       ///< Every other 700 steps take so many times as long.
  int kinds = 1;         ///< Of steps, in random order; each is a graph.
  int prefill_every = 0;  ///< 0: never.
  double prefill = 120;
  double accidents = 0;  ///< Part of the steps that take twice to four times as long.
  double waits = 0.9;    ///< Part of a step alone that is waits.
  double stay = 1;       ///< What a step is lengthened by if the gates stay open, as a part.
  double rare = 0;       ///< Part of the steps for which it is rare_stay instead.
  double rare_stay = 0;
  std::vector<double> phases = {};  ///< Steps in turn take so many times as long.
};

struct Sum {
  int steps = 0;
  int windows = 0;
  int windows_in_prefill = 0;
  double alone = 0;  ///< What the same steps take without windows.
  double took = 0;
  double open = 0;
  double longest = 0;
  int stayed = 0;  ///< Steps in which the gates stayed open.
  int late = 0;    ///< Of usual steps, beyond `limit` of the run.
  int usual = 0;
  [[nodiscard]] double longer() const { return took / alone - 1; }
};

class Together {
 public:
  explicit Together(std::uint64_t seed = 1) : random_(seed) { law.neighbours(7); }

  /// `limit`: ms, for the count of late steps.
  Sum run(const Program& program, int steps, double limit = 1e9) {
    Sum sum;
    for (int i = 0; i < steps; ++i) {
      ++number_;
      const bool prefill = program.prefill_every != 0 && number_ % program.prefill_every == 0;
      const double pace =
          (1 + program.drift * std::sin(double(number_) / 4000 * 2 * 3.14159)) *
          (number_ / 700 % 2 == 1 ? program.jump : 1) *
          (program.phases.empty() ? 1 : program.phases[number_ % program.phases.size()]);
      const double accident =
          program.accidents != 0 && uniform() < program.accidents ? 2 + 2 * uniform() : 1;
      const bool other = program.other != 0 && number_ % 2 == 0;
      const double usual = other ? program.other : program.step;
      const double alone = (prefill ? program.prefill : usual) * pace * accident *
                           std::exp(program.noise * normal_(random_));
      const std::uint64_t graph =
          program.kinds == 1 ? 0 : random_() % static_cast<unsigned>(program.kinds);
      const auto kind = law.kind_of(prefill || other ? 1 : 2 + graph, prefill ? 900 : 30);
      const double window =
          law.is_usual(kind) && law.knows_steps() ? double(law.window_ns()) / kMs : 0;
      const bool stays = window != 0 && law.stays_open();
      const bool rare = program.rare != 0 && uniform() < program.rare;
      double open = window == 0 ? 0 : window + 0.1;  // the thread is late
      double cost = open == 0 ? 0 : open * program.price + 2 * program.overrun * uniform();
      if (stays) cost = std::min(alone, open) * (rare ? program.rare_stay : program.stay);
      const double took = alone + cost * (1 - program.spill) + std::exchange(spilled_, 0);
      spilled_ = cost * program.spill;
      // Gates that stay open close after some steps if none of them ends.
      if (stays) open = std::min(took, window + 0.1);
      law.ended(kind, std::uint64_t(took * kMs), std::uint64_t(open * kMs),
                std::uint64_t((alone * program.waits + cost) * kMs), is_alone);
      ++sum.steps;
      sum.alone += alone;
      sum.took += took;
      sum.open += open;
      sum.windows += open != 0 ? 1 : 0;
      sum.stayed += stays ? 1 : 0;
      sum.windows_in_prefill += open != 0 && prefill ? 1 : 0;
      if (!stays) sum.longest = std::max(sum.longest, open);
      if (prefill) continue;
      ++sum.usual;
      sum.late += took > limit ? 1 : 0;
    }
    return sum;
  }

  StepLaw law;
  bool is_alone = true;  ///< Nobody else runs, as far as known, in steps that no window touches.

 private:
  double uniform() { return uniform_(random_); }
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> uniform_{0, 1};
  std::normal_distribution<double> normal_;
  std::uint64_t number_ = 0;
  double spilled_ = 0;
};

/// What the 5 % would pay for, if somebody knew the price.
inline double best_open(const Program& program, const Sum& sum) {
  const double window = std::max(1.0, 0.05 * program.step);
  const double cost = window * program.price + program.overrun;
  return std::min(0.05 * sum.alone / cost * window, sum.alone);
}

inline shm::Target target(const char* text) { return *shm::parse_target(text); }

}  // namespace sluice::intercept::test
