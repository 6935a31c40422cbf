#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "profiler/packs/pack.hpp"

/// The space of a task's programs: numbers to decisions and back.
namespace sluice::profiler {

/// A program as decisions: a sketch, and for each of its knobs the number of the chosen value.
struct Choice {
  std::size_t sketch = 0;
  std::vector<std::uint64_t> digits;
  friend bool operator==(const Choice&, const Choice&) = default;
  friend auto operator<=>(const Choice&, const Choice&) = default;
};

/// All ordered factorisations of `extent` into `parts` factors, the last at most `max_innermost`,
/// in lexicographic order.
[[nodiscard]] std::vector<std::vector<std::int64_t>> factorisations(std::int64_t extent,
                                                                    std::size_t parts,
                                                                    std::int64_t max_innermost);

/// The values that a knob can take.
class KnobValues {
 public:
  explicit KnobValues(const Knob& knob);

  [[nodiscard]] const Knob& knob() const { return knob_; }
  [[nodiscard]] std::uint64_t size() const;
  /// The value as in a record: a list of factors, or one value.
  [[nodiscard]] nlohmann::json value(std::uint64_t digit) const;
  /// A factor of the value of an "sp".
  [[nodiscard]] std::int64_t factor(std::uint64_t digit, std::size_t part) const {
    return factors_[digit][part];
  }
  /// Throws base::UsageError if the knob has no such value.
  [[nodiscard]] std::uint64_t digit(const nlohmann::json& value) const;
  /// The value as numbers for a cost model: log2 of each factor, or of 1 + the number.
  [[nodiscard]] std::vector<float> numbers(std::uint64_t digit) const;

 private:
  Knob knob_;
  std::vector<std::vector<std::int64_t>> factors_;  ///< Of an "sp".
};

/// Every program of a task has an index: the sizes of the sketches before its own, plus the digits
/// of its knobs in mixed radix, the first knob least significant.
class ProgramSpace {
 public:
  /// Throws base::UsageError if the task has no sketch, a knob no value, or the space more than
  /// 2^63 programs.
  explicit ProgramSpace(const std::vector<Sketch>& sketches);

  [[nodiscard]] std::uint64_t size() const { return offsets_.back(); }
  [[nodiscard]] std::size_t sketches() const { return sketches_.size(); }
  [[nodiscard]] const std::vector<KnobValues>& knobs(std::size_t sketch) const {
    return sketches_[sketch];
  }

  /// Throws base::UsageError if `index` is not below size().
  [[nodiscard]] Choice choice(std::uint64_t index) const;
  [[nodiscard]] std::uint64_t index(const Choice& choice) const;
  /// The decisions as in a record: [[name, type, value]...].
  [[nodiscard]] nlohmann::json entity(const Choice& choice) const;
  /// Throws base::UsageError if the decisions are not of that sketch.
  [[nodiscard]] Choice choice(std::size_t sketch, const nlohmann::json& entity) const;
  /// The decisions for a cost model, as long for every choice: the sketch, then the knobs.
  [[nodiscard]] std::vector<float> numbers(const Choice& choice) const;

  /// False where TVM's check of programs for a GPU is known to refuse: tiles of five parts have
  /// their threads in the third. The same as _is_plausible() of `sluice programs`.
  [[nodiscard]] bool plausible(const Choice& choice) const;

  /// The space in the text form that AutoTVM prints.
  [[nodiscard]] std::string text() const;

 private:
  std::vector<std::vector<KnobValues>> sketches_;
  std::vector<std::uint64_t> offsets_;  ///< Of each sketch, and the end.
  std::size_t numbers_ = 0;
};

}  // namespace sluice::profiler
