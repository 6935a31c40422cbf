#pragma once
#include <map>

#include "profiler/tuner/tuner.hpp"

namespace sluice::profiler {

/// AutoTVM's genetic tuner: a population of 50, of which the 3 best programs live on; parents are
/// drawn by their speed; each decision of a child changes with a probability of 0.1.
class GeneticTuner : public Tuner {
 public:
  explicit GeneticTuner(const TunerNeeds& needs)
      : space_(needs.space), random_(needs.seed), unseen_(space_, random_) {}

  std::vector<std::uint64_t> propose(std::size_t count) override;
  void learn(const std::vector<Trial>& trials) override;

 private:
  struct Rated {
    Choice choice;
    double speed = 0;
  };
  [[nodiscard]] Choice child();
  [[nodiscard]] const Choice& parent();

  const ProgramSpace& space_;
  Random random_;
  Unseen unseen_;
  std::vector<Rated> generation_;  ///< Measured, of the running generation.
  std::vector<Rated> parents_;
  std::vector<Rated> elite_;  ///< The best of all, best first.
};

}  // namespace sluice::profiler
