#include "profiler/tuner/tuners.hpp"

#include "base/error.hpp"
#include "base/nearest.hpp"
#include "profiler/tuner/genetic_tuner.hpp"
#include "profiler/tuner/predict_tuner.hpp"
#include "profiler/tuner/xgb_tuner.hpp"

namespace sluice::profiler {
namespace {

class RandomTuner : public Tuner {
 public:
  explicit RandomTuner(const TunerNeeds& needs)
      : random_(needs.seed), unseen_(needs.space, random_) {}

  std::vector<std::uint64_t> propose(std::size_t count) override {
    std::vector<std::uint64_t> chosen;
    unseen_.fill(chosen, count);
    return chosen;
  }
  void learn(const std::vector<Trial>&) override {}

 private:
  Random random_;
  Unseen unseen_;
};

/// Every index in turn.
class GridTuner : public Tuner {
 public:
  explicit GridTuner(const TunerNeeds& needs) : size_(needs.space.size()) {}

  std::vector<std::uint64_t> propose(std::size_t count) override {
    std::vector<std::uint64_t> chosen;
    while (chosen.size() < count && next_ < size_) chosen.push_back(next_++);
    return chosen;
  }
  void learn(const std::vector<Trial>&) override {}

 private:
  std::uint64_t size_;
  std::uint64_t next_ = 0;
};

}  // namespace

const std::vector<std::string>& tuner_names() {
  static const std::vector<std::string> names{"random",   "gridsearch", "ga",
                                              "xgb",      "xgb-rank",   "xgb_itervar",
                                              "xgb_knob", "xgb_curve",  "predict"};
  return names;
}

std::unique_ptr<Tuner> make_tuner(const std::string& name, const TunerNeeds& needs) {
  if (name == "random") return std::make_unique<RandomTuner>(needs);
  if (name == "gridsearch") return std::make_unique<GridTuner>(needs);
  if (name == "ga") return std::make_unique<GeneticTuner>(needs);
  if (name.starts_with("xgb")) return make_xgb_tuner(name, needs);
  if (name == "predict") return make_predict_tuner(needs);
  throw base::UsageError("unknown tuner '" + name + "'" + base::did_you_mean(name, tuner_names()));
}

}  // namespace sluice::profiler
