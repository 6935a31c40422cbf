#pragma once
#include <memory>
#include <string>
#include <vector>

namespace sluice::profiler {

using Rows = std::vector<std::vector<float>>;

/// Gradient-boosted trees of XGBoost.
class Trees {
 public:
  /// `objective`: "reg:squarederror" or "rank:pairwise". Throws base::RunError if this build has no
  /// XGBoost.
  Trees(std::string objective, std::uint64_t seed);
  ~Trees();
  Trees(const Trees&) = delete;
  Trees& operator=(const Trees&) = delete;

  /// Rows of equal length. Forgets what it learnt before.
  void fit(const Rows& rows, const std::vector<float>& labels, int rounds);
  /// After fit(). Larger is better if the labels were speeds.
  [[nodiscard]] std::vector<float> predict(const Rows& rows) const;

 private:
  struct Booster;
  std::string objective_;
  std::uint64_t seed_;
  std::unique_ptr<Booster> booster_;
};

}  // namespace sluice::profiler
