#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "intercept/jobs/close_law.hpp"
#include "intercept/jobs/spending.hpp"

namespace sluice::intercept::test {

using When = CloseLaw::Decision::When;

constexpr double kMs = 1e6;  // nanoseconds

/// A critical program next to best effort, as far as gates matter to it. Times are ms.
struct Program {
  std::uint64_t launches = 1000;
  double host = 5;           ///< Time in which the host makes the launches.
  double gpu = 1.5;          ///< Their time on the GPU.
  double host_noise = 0.1;   ///< Sigma of the logarithm.
  double wait_noise = 0.03;  ///< Mean of what a wait takes longer than the GPU.
  bool heavy = false;        ///< The noise of waits has a Pareto tail, without a variance.
  double kernel = 0.4;       ///< The longest kernel of best effort; one runs when the gates close.
  double share = 0.4;        ///< Of the GPU, for this program, while both have work.
  double rare = 0;           ///< Probability that open gates meet a kernel of `rare_kernel`.
  double rare_kernel = 0;
  double slower = 0;       ///< Part by which open gates lengthen the time of the host.
  double other_shape = 0;  ///< Probability that a job has `other_gpu` instead of `gpu`.
  double other_gpu = 0;
};

/// Its logarithm is drawn.
inline double between(std::mt19937_64& random, double low, double high) {
  return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random));
}

/// What does not depend on the neighbour.
inline Program a_critical_program(std::mt19937_64& random) {
  Program program;
  program.launches = std::uint64_t(between(random, 4, 1000));
  program.host = between(random, 1, 10);
  program.gpu = program.host * between(random, 0.1, 0.6);
  program.host_noise = between(random, 0.01, 0.2);
  return program;
}

struct Outcome {
  double waited = 0;
  double duration = 0;
  double best_effort = 0;  ///< GPU time that best effort got.
  double closed = -1;      ///< Since the begin; negative: never.
  std::uint64_t launches = 0;
};

/// When the gates close, for a fixed part of the job.
struct Point {
  When when = When::kFirst;
  double part = 0;
};

class Machine {
 public:
  explicit Machine(std::uint64_t seed) : random_(seed) {}

  /// One job whose gates close at `part` of its launches, or after `time` if that is given.
  Outcome run(const Program& program, When when, double part, double time, double pace = 1) {
    Outcome out;
    out.launches = program.launches;
    double host = program.host * pace * std::exp(program.host_noise * normal_(random_));
    const double gpu = uniform() < program.other_shape ? program.other_gpu : program.gpu;
    const double running =
        uniform() < program.rare ? program.rare_kernel : program.kernel * uniform();
    const bool opens = when != When::kFirst;
    const double arrives = gpu / host;
    if (opens) host *= 1 + program.slower;
    double close = when == When::kFirst           ? 0
                   : when == When::kAfterLaunches ? host * std::min(part, 1.0)
                   : when == When::kAfterTime     ? time
                                                  : host;
    if (when != When::kNever && close > host) close = host;  // the wait closes them
    const double open = std::min(close, host);
    double backlog = std::max(0.0, arrives - program.share) * open;
    out.best_effort = open * (1 - std::min(arrives, program.share));
    // A rare kernel of best effort needs time with open gates to begin.
    const bool meets = opens || program.rare == 0;
    backlog += meets ? running : program.kernel * uniform();
    if (when == When::kNever) {
      const double left = backlog / program.share;
      out.best_effort += left * (1 - program.share);
      backlog = left;
    } else {
      backlog = std::max(0.0, backlog + (arrives - 1) * (host - open));
      out.closed = close;
    }
    const double noise = program.heavy ? program.wait_noise * (std::pow(uniform(), -1 / 1.5) - 1)
                                       : -program.wait_noise * std::log(1 - uniform());
    out.waited = backlog + noise;
    out.duration = host + out.waited;
    return out;
  }

  double uniform() { return uniform_(random_); }
  std::uint64_t bits() { return random_(); }

 private:
  std::mt19937_64 random_;
  std::uniform_real_distribution<double> uniform_{1e-9, 1};
  std::normal_distribution<double> normal_;
};

/// What a moment costs, from many jobs of which every second one closes at the first launch.
struct Cost {
  double above = 0;      ///< Share of pairs that cost more than is allowed at the median.
  double more_late = 0;  ///< Jobs later than the p99 of the references by 5 % of the p99 duration.
  double best_effort = 0;
  [[nodiscard]] bool harmless() const { return above < 0.5 && more_late < CloseLaw::kMoreLate; }
  /// Beyond doubt: these numbers are estimates themselves.
  [[nodiscard]] bool is_harmful() const {
    return above > 0.51 || more_late > CloseLaw::kMoreLate + 0.003;
  }
};

inline double at(std::vector<double> values, double part) {
  const auto place = values.begin() + static_cast<std::ptrdiff_t>(part * double(values.size() - 1));
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

inline Cost cost_of(const Program& program, When when, double part, int jobs = 20'000) {
  Machine machine(99);
  std::vector<double> waits, durations, differences;
  std::vector<double> trials;
  Cost cost;
  for (int i = 0; i < jobs; ++i) {
    const Outcome reference = machine.run(program, When::kFirst, 0, 0);
    const Outcome trial = machine.run(program, when, part, part * program.host);
    waits.push_back(reference.waited);
    durations.push_back(reference.duration);
    trials.push_back(trial.waited);
    cost.best_effort += trial.best_effort / jobs;
  }
  const double allowed = CloseLaw::Allowed{}.median / 1000.0 * at(durations, 0.5);
  const double late = at(waits, 0.99) + 0.05 * at(durations, 0.99);
  for (int i = 0; i < jobs; ++i) {
    if (trials[i] - waits[i] > allowed) cost.above += 1.0 / jobs;
    if (trials[i] > late) cost.more_late += 1.0 / jobs;
  }
  cost.more_late -= 0.01;
  return cost;
}

inline When when_of(const Program& program, unsigned level) {
  if (level == 0) return When::kFirst;
  if (level == CloseLaw::kNeverLevel) return When::kNever;
  if (level == CloseLaw::kWaitLevel) return When::kAtWait;
  return program.launches < CloseLaw::kFewLaunches ? When::kAfterTime : When::kAfterLaunches;
}

inline Cost cost_of_level(const Program& program, unsigned level) {
  const When when = when_of(program, level);
  const std::uint64_t launches = program.launches * level / 8;
  const double part =
      when == When::kAfterLaunches ? double(launches) / double(program.launches) : level / 8.0;
  return cost_of(program, when, part);
}

/// What best effort gets from a job at best, if the moment is chosen by someone who knows the
/// program.
inline double best_possible(const Program& program) {
  constexpr int kJobs = 3000;
  constexpr int kParts = 32;
  const Cost never = cost_of(program, When::kNever, 0, kJobs);
  double best = never.harmless() ? never.best_effort : 0;
  for (int i = 1; i <= kParts; ++i) {
    const When when = i == kParts ? When::kAtWait : when_of(program, 1);
    const Cost cost = cost_of(program, when, double(i) / kParts, kJobs);
    if (cost.harmless()) best = std::max(best, cost.best_effort);
  }
  return best;
}

/// The law with a program, job after job.
class Together {
 public:
  struct Sum {
    int jobs = 0;
    double best_effort = 0;
    std::vector<double> waits;
    std::vector<double> durations;
    [[nodiscard]] double share() const { return best_effort / jobs; }
  };

  explicit Together(std::uint64_t seed) : machine_(seed) {}

  Sum run(const Program& program, int jobs, double pace = 1) {
    Sum sum;
    for (int i = 0; i < jobs; ++i) {
      const auto decision = law.decide(fingerprint, neighbours, now, narrow);
      const double part = double(decision.launches) / double(program.launches);
      const Outcome out =
          machine_.run(program, decision.when, part, double(decision.ns) / kMs, pace);
      CloseLaw::Job job;
      job.waited_ns = std::uint64_t(out.waited * kMs);
      job.duration_ns = std::uint64_t(out.duration * kMs);
      job.launches = out.launches;
      job.neighbour_busy = neighbour_busy;
      job.neighbours = neighbours;
      if (out.closed >= 0) job.closed_ns = std::uint64_t(out.closed * kMs);
      law.ended(decision, job);
      now += job.duration_ns + std::uint64_t(kMs);
      if (spending) {
        spending->spend(Spending::Lever::kClosing, law.take_spent());
        spending->ended(now, job.duration_ns);
        law.set_overdrawn(spending->is_overdrawn());
      }
      sum.best_effort += out.best_effort;
      sum.waits.push_back(out.waited);
      sum.durations.push_back(out.duration);
      ++sum.jobs;
    }
    return sum;
  }
  [[nodiscard]] CloseLaw::Status status() const { return law.status(fingerprint, neighbours); }

  void give(double part) {
    spending.emplace();
    spending->set(part);
    law.set(CloseLaw::Allowed::of(static_cast<std::uint32_t>(std::lround(part * 1000))));
  }

  CloseLaw law;
  std::optional<Spending> spending;
  std::uint64_t fingerprint = 1;
  std::uint64_t neighbours = 7;
  std::uint64_t now = 1;
  bool neighbour_busy = true;
  bool narrow = false;

 private:
  Machine machine_;
};

/// Runs until the law is at rest.
inline CloseLaw::Status search(Together& run, const Program& program, int most = 30'000) {
  while (most-- > 0 && run.status().state == CloseLaw::State::kLearning) run.run(program, 1);
  return run.status();
}

/// How many of `runs` may be wrong if one in 100 is: three sigma more than that.
inline double chance(int runs) { return 0.01 * runs + 3 * std::sqrt(0.01 * runs); }

}  // namespace sluice::intercept::test
