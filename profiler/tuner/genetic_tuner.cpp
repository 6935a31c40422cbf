#include "profiler/tuner/genetic_tuner.hpp"

#include <algorithm>
#include <cmath>

namespace sluice::profiler {
namespace {

constexpr std::size_t kPopulation = 50;
constexpr std::size_t kElite = 3;
constexpr double kMutation = 0.1;
constexpr int kTries = 20;

}  // namespace

std::vector<std::uint64_t> GeneticTuner::propose(std::size_t count) {
  std::vector<std::uint64_t> chosen;
  // Parents know nothing before a whole generation was measured.
  if (parents_.empty()) {
    unseen_.fill(chosen, std::min(count, kPopulation));
    return chosen;
  }
  count = std::min(count, kPopulation);
  for (int i = 0; i < kTries * static_cast<int>(count) && chosen.size() < count; ++i) {
    const std::uint64_t index = space_.index(child());
    if (unseen_.take(index)) chosen.push_back(index);
  }
  unseen_.fill(chosen, count);
  return chosen;
}

void GeneticTuner::learn(const std::vector<Trial>& trials) {
  for (const Trial& trial : trials) {
    Rated rated{space_.choice(trial.index), std::isfinite(trial.cost) ? 1 / trial.cost : 0};
    elite_.push_back(rated);
    generation_.push_back(std::move(rated));
  }
  std::ranges::stable_sort(elite_, std::greater{}, &Rated::speed);
  if (elite_.size() > kElite) elite_.resize(kElite);
  if (generation_.size() < kPopulation) return;
  parents_ = std::move(generation_);
  parents_.insert(parents_.end(), elite_.begin(), elite_.end());
  generation_.clear();
}

const Choice& GeneticTuner::parent() {
  double sum = 0;
  for (const Rated& rated : parents_) sum += rated.speed;
  double at = random_.real() * sum;
  for (const Rated& rated : parents_) {
    at -= rated.speed;
    if (at < 0) return rated.choice;
  }
  return parents_[random_.below(parents_.size())].choice;
}

Choice GeneticTuner::child() {
  Choice child = parent();
  const Choice& other = parent();
  if (other.sketch == child.sketch && !child.digits.empty()) {
    const std::size_t cut = random_.below(child.digits.size());
    std::copy(other.digits.begin() + static_cast<long>(cut), other.digits.end(),
              child.digits.begin() + static_cast<long>(cut));
  }
  const auto& knobs = space_.knobs(child.sketch);
  for (std::size_t i = 0; i < knobs.size(); ++i) {
    if (random_.real() < kMutation) child.digits[i] = random_.below(knobs[i].size());
  }
  return random_.real() < kMutation ? mutated(space_, child, random_) : child;
}

}  // namespace sluice::profiler
