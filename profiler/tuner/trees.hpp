#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace sluice::profiler {

/// Rows of equal length, one after the other. NaN: unknown.
struct Table {
  std::size_t rows = 0;
  std::vector<float> values{};

  void add(const std::vector<float>& row) {
    values.insert(values.end(), row.begin(), row.end());
    ++rows;
  }
};

/// Whether this build has XGBoost.
[[nodiscard]] bool has_xgboost();

/// Gradient-boosted trees of XGBoost.
class Trees {
 public:
  /// Parameters of XGBoost and their values.
  using Parameters = std::vector<std::pair<std::string, std::string>>;

  /// Throws base::RunError if this build has no XGBoost.
  Trees();
  ~Trees();
  Trees(const Trees&) = delete;
  Trees& operator=(const Trees&) = delete;

  /// Forgets what it learnt before. `weights`: of the rows; empty: all count the same. An objective
  /// that ranks takes all rows as one group.
  void fit(const Table& table, const std::vector<float>& labels, const std::vector<float>& weights,
           const Parameters& parameters, int rounds);
  [[nodiscard]] bool fitted() const { return booster_ != nullptr; }
  /// After fit(): a label for each row.
  [[nodiscard]] std::vector<float> predict(const Table& table) const;

 private:
  struct Booster;
  std::unique_ptr<Booster> booster_;
};

}  // namespace sluice::profiler
