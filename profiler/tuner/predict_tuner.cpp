#include "profiler/tuner/predict_tuner.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "profiler/tuner/annealing.hpp"

namespace sluice::profiler {
namespace {

constexpr std::size_t kRound = 64;
constexpr double kEpsilon = 0.05;  ///< The part of a round that is random.
/// Each look at a program costs a call of TVM.
constexpr Annealing kAnnealing{.chains = 64, .steps = 30};

class PredictTuner : public Tuner {
 public:
  explicit PredictTuner(const TunerNeeds& needs)
      : needs_(needs), random_(needs.seed), unseen_(needs.space, random_) {}

  std::vector<std::uint64_t> propose(std::size_t count) override {
    count = std::min(count, kRound);
    const auto part =
        static_cast<std::size_t>(std::ceil(static_cast<double>(count) * (1 - kEpsilon)));
    const RateOf rate = [this](const auto& indices) { return ratings(indices); };
    std::vector<std::uint64_t> chosen;
    for (const std::uint64_t index :
         anneal(needs_.space, kAnnealing, rate, trials_, unseen_, random_, part)) {
      if (unseen_.take(index)) chosen.push_back(index);
    }
    unseen_.fill(chosen, count);
    return chosen;
  }

  void learn(const std::vector<Trial>& trials) override {
    trials_.insert(trials_.end(), trials.begin(), trials.end());
  }

 private:
  /// Every program is predicted once.
  std::vector<float> ratings(const std::vector<std::uint64_t>& indices) {
    std::vector<std::uint64_t> unknown;
    for (const std::uint64_t index : indices) {
      if (ratings_.try_emplace(index, -INFINITY).second) unknown.push_back(index);
    }
    if (!unknown.empty()) {
      const auto found = needs_.predicted(unknown);
      for (std::size_t i = 0; i < unknown.size(); ++i) ratings_[unknown[i]] = found[i];
    }
    std::vector<float> rated;
    for (const std::uint64_t index : indices) rated.push_back(ratings_.at(index));
    return rated;
  }

  TunerNeeds needs_;
  Random random_;
  Unseen unseen_;
  std::vector<Trial> trials_;
  std::map<std::uint64_t, float> ratings_;
};

}  // namespace

std::unique_ptr<Tuner> make_predict_tuner(const TunerNeeds& needs) {
  if (!needs.predicted)
    throw base::RunError("the tuner predict needs a predictor: --predictor DIR");
  return std::make_unique<PredictTuner>(needs);
}

}  // namespace sluice::profiler
