#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "profiler/packs/knobs.hpp"

/// Tuners choose which programs of a task are measured next. They measure nothing themselves.
namespace sluice::profiler {

/// A measured program. `cost`: seconds; infinite for a program that failed.
struct Trial {
  std::uint64_t index = 0;
  double cost = 0;
};

/// The features of programs, one row each: the per-store features of TVM. An empty row: the space
/// refuses the index.
using FeaturesOf = std::function<std::vector<std::vector<std::vector<float>>>(
    const std::vector<std::uint64_t>& indices)>;

class Tuner {
 public:
  virtual ~Tuner() = default;
  /// At most `count` programs that no earlier call named. Empty: there are no more.
  [[nodiscard]] virtual std::vector<std::uint64_t> propose(std::size_t count) = 0;
  /// The results of proposed programs, in any order.
  virtual void learn(const std::vector<Trial>& trials) = 0;
};

/// Ratings of programs: larger is better, -infinity where the space refuses the index.
using RateOf = std::function<std::vector<float>(const std::vector<std::uint64_t>& indices)>;

/// What a tuner may use. `features` is needed by xgb, xgb-rank, xgb_itervar and xgb_curve, and
/// `predicted` by predict.
struct TunerNeeds {
  const ProgramSpace& space;
  std::uint64_t seed = 0;
  FeaturesOf features{};
  RateOf predicted{};
};

/// Random numbers that are the same with every library.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  [[nodiscard]] std::uint64_t below(std::uint64_t end) { return next() % end; }
  [[nodiscard]] double real() { return static_cast<double>(next() >> 11U) * 0x1p-53; }

 private:
  std::uint64_t state_;
};

/// Programs of a space that were not named before.
class Unseen {
 public:
  Unseen(const ProgramSpace& space, Random& random) : space_(space), random_(random) {}
  /// True if it is new; then it is not new any more.
  bool take(std::uint64_t index) { return seen_.insert(index).second; }
  [[nodiscard]] bool is_new(std::uint64_t index) const { return !seen_.contains(index); }
  /// Adds random programs up to `count`, or all that are left.
  void fill(std::vector<std::uint64_t>& chosen, std::size_t count);
  [[nodiscard]] bool none_left() const { return seen_.size() >= space_.size(); }

 private:
  const ProgramSpace& space_;
  Random& random_;
  std::set<std::uint64_t> seen_;
};

/// The program with one decision changed at random; sometimes another sketch.
[[nodiscard]] Choice mutated(const ProgramSpace& space, const Choice& choice, Random& random);

}  // namespace sluice::profiler
