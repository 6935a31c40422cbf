#include "profiler/tuner/tuner.hpp"

namespace sluice::profiler {

std::uint64_t Random::next() {
  // SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014).
  state_ += 0x9e37'79b9'7f4a'7c15;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30U)) * 0xbf58'476d'1ce4'e5b9;
  z = (z ^ (z >> 27U)) * 0x94d0'49bb'1331'11eb;
  return z ^ (z >> 31U);
}

void Unseen::fill(std::vector<std::uint64_t>& chosen, std::size_t count) {
  while (chosen.size() < count && !none_left()) {
    constexpr int kTries = 100;
    std::uint64_t index = random_.below(space_.size());
    // In a space that is nearly used up, the next free one instead of many attempts.
    for (int tries = 0;
         tries < kTries && !(is_new(index) && space_.plausible(space_.choice(index))); ++tries) {
      index = random_.below(space_.size());
    }
    while (!is_new(index)) index = (index + 1) % space_.size();
    take(index);
    chosen.push_back(index);
  }
}

Choice mutated(const ProgramSpace& space, const Choice& choice, Random& random) {
  constexpr double kOtherSketch = 0.05;
  if (space.knobs(choice.sketch).empty() || random.real() < kOtherSketch) {
    return space.choice(random.below(space.size()));
  }
  constexpr int kTries = 8;
  const auto& knobs = space.knobs(choice.sketch);
  Choice changed = choice;
  int tries = 0;
  do {
    changed = choice;
    const std::size_t knob = random.below(knobs.size());
    changed.digits[knob] = random.below(knobs[knob].size());
  } while (++tries < kTries && !space.plausible(changed));
  return changed;
}

}  // namespace sluice::profiler
