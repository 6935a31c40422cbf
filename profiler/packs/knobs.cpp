#include "profiler/packs/knobs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"

namespace sluice::profiler {

using nlohmann::json;

namespace {

void factorise(std::int64_t rest, std::size_t parts, std::int64_t max_innermost,
               const std::vector<std::int64_t>& divisors, std::vector<std::int64_t>& begun,
               std::vector<std::vector<std::int64_t>>& all) {
  if (parts == 1) {
    if (rest > max_innermost) return;
    begun.push_back(rest);
    all.push_back(begun);
    begun.pop_back();
    return;
  }
  for (const std::int64_t divisor : divisors) {
    if (divisor > rest) break;
    if (rest % divisor != 0) continue;
    begun.push_back(divisor);
    factorise(rest / divisor, parts - 1, max_innermost, divisors, begun, all);
    begun.pop_back();
  }
}

std::uint64_t checked_product(std::uint64_t a, std::uint64_t b) {
  if (a > static_cast<std::uint64_t>(INT64_MAX) / std::max<std::uint64_t>(b, 1)) {
    throw base::UsageError("the space has more than 2^63 programs");
  }
  return a * b;
}

}  // namespace

std::vector<std::vector<std::int64_t>> factorisations(std::int64_t extent, std::size_t parts,
                                                      std::int64_t max_innermost) {
  std::vector<std::int64_t> divisors;
  for (std::int64_t divisor = 1; divisor <= extent; ++divisor) {
    if (extent % divisor == 0) divisors.push_back(divisor);
  }
  std::vector<std::vector<std::int64_t>> all;
  std::vector<std::int64_t> begun;
  if (parts > 0) factorise(extent, parts, max_innermost, divisors, begun, all);
  return all;
}

KnobValues::KnobValues(const Knob& knob) : knob_(knob) {
  if (knob.type == "sp") {
    factors_ = factorisations(knob.extent, knob.parts, knob.max_innermost);
  }
  if (size() == 0) throw base::UsageError("knob " + knob.name + " has no value");
}

std::uint64_t KnobValues::size() const {
  return knob_.type == "sp" ? factors_.size() : knob_.values.size();
}

json KnobValues::value(std::uint64_t digit) const {
  return knob_.type == "sp" ? json(factors_[digit]) : knob_.values[digit];
}

std::uint64_t KnobValues::digit(const json& value) const {
  for (std::uint64_t digit = 0; digit < size(); ++digit) {
    if (knob_.type == "sp" ? value == factors_[digit] : value == knob_.values[digit]) return digit;
  }
  throw base::UsageError("knob " + knob_.name + " has no value " + value.dump());
}

std::vector<float> KnobValues::numbers(std::uint64_t digit) const {
  std::vector<float> numbers;
  if (knob_.type == "sp") {
    for (const std::int64_t factor : factors_[digit]) {
      numbers.push_back(std::log2(static_cast<float>(factor)));
    }
  } else {
    const json& value = knob_.values[digit];
    numbers.push_back(value.is_number() && value.get<double>() >= 0
                          ? std::log2(1 + value.get<float>())
                          : static_cast<float>(digit));
  }
  return numbers;
}

ProgramSpace::ProgramSpace(const std::vector<Sketch>& sketches) {
  if (sketches.empty()) throw base::UsageError("the task has no sketch");
  offsets_.push_back(0);
  for (const Sketch& sketch : sketches) {
    std::uint64_t size = 1;
    std::size_t numbers = 0;
    auto& knobs = sketches_.emplace_back();
    for (const Knob& knob : sketch) {
      knobs.emplace_back(knob);
      size = checked_product(size, knobs.back().size());
      numbers += knobs.back().numbers(0).size();
    }
    if (size > static_cast<std::uint64_t>(INT64_MAX) - offsets_.back()) checked_product(size, 2);
    offsets_.push_back(offsets_.back() + size);
    numbers_ = std::max(numbers_, numbers);
  }
}

Choice ProgramSpace::choice(std::uint64_t index) const {
  if (index >= size()) {
    throw base::UsageError(fmt::format("index {} is not below {}", index, size()));
  }
  const auto next = std::ranges::upper_bound(offsets_, index);
  Choice choice;
  choice.sketch = static_cast<std::size_t>(next - offsets_.begin()) - 1;
  std::uint64_t rest = index - offsets_[choice.sketch];
  for (const KnobValues& knob : sketches_[choice.sketch]) {
    choice.digits.push_back(rest % knob.size());
    rest /= knob.size();
  }
  return choice;
}

std::uint64_t ProgramSpace::index(const Choice& choice) const {
  const auto& knobs = sketches_[choice.sketch];
  std::uint64_t index = 0;
  for (std::size_t i = knobs.size(); i-- > 0;) {
    index = index * knobs[i].size() + choice.digits[i];
  }
  return offsets_[choice.sketch] + index;
}

json ProgramSpace::entity(const Choice& choice) const {
  const auto& knobs = sketches_[choice.sketch];
  json entity = json::array();
  for (std::size_t i = 0; i < knobs.size(); ++i) {
    entity.push_back(
        {knobs[i].knob().name, knobs[i].knob().type, knobs[i].value(choice.digits[i])});
  }
  return entity;
}

Choice ProgramSpace::choice(std::size_t sketch, const json& entity) const {
  if (sketch >= sketches_.size() || entity.size() != sketches_[sketch].size()) {
    throw base::UsageError("decisions of another task: " + entity.dump());
  }
  Choice choice{sketch, {}};
  for (std::size_t i = 0; i < entity.size(); ++i) {
    choice.digits.push_back(sketches_[sketch][i].digit(entity[i].at(2)));
  }
  return choice;
}

std::vector<float> ProgramSpace::numbers(const Choice& choice) const {
  std::vector<float> numbers{static_cast<float>(choice.sketch)};
  const auto& knobs = sketches_[choice.sketch];
  for (std::size_t i = 0; i < knobs.size(); ++i) {
    const auto more = knobs[i].numbers(choice.digits[i]);
    numbers.insert(numbers.end(), more.begin(), more.end());
  }
  numbers.resize(1 + numbers_, -1);
  return numbers;
}

bool ProgramSpace::plausible(const Choice& choice) const {
  constexpr std::size_t kParts = 5;
  constexpr std::size_t kThreads = 2;
  constexpr std::int64_t kLeastThreads = 32;
  constexpr std::int64_t kMostThreads = 1024;
  std::int64_t threads = 1;
  bool tiled = false;
  const auto& knobs = sketches_[choice.sketch];
  for (std::size_t i = 0; i < knobs.size(); ++i) {
    const Knob& knob = knobs[i].knob();
    if (knob.type != "sp" || knob.parts != kParts) continue;
    tiled = true;
    threads *= knobs[i].factor(choice.digits[i], kThreads);
    if (threads > kMostThreads) return false;
  }
  return !tiled || threads >= kLeastThreads;
}

std::string ProgramSpace::text() const {
  std::string text = fmt::format("ConfigSpace (len={}, space_map=\n", size());
  std::size_t number = 0;
  for (std::size_t sketch = 0; sketch < sketches_.size(); ++sketch) {
    for (const KnobValues& values : sketches_[sketch]) {
      const Knob& knob = values.knob();
      const std::string name =
          sketches_.size() > 1 ? fmt::format("sketch_{}.{}", sketch, knob.name) : knob.name;
      text += fmt::format("  {:2} {}: ", number++, name);
      text += knob.type == "sp"
                  ? fmt::format(
                        "Split(policy=factors, product={}, num_outputs={}) "
                        "len={}\n",
                        knob.extent, knob.parts, values.size())
                  : fmt::format("OtherOption({}) len={}\n", knob.values.dump(), values.size());
    }
  }
  return text + ")\n";
}

}  // namespace sluice::profiler
