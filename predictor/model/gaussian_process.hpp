#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <vector>

namespace sluice::predictor {

/// Regression by a Gaussian process (Rasmussen and Williams, 2006, algorithm 2.1) with a Matern
/// kernel of 3/2. Each column is scaled to mean 0 and deviation 1 over the rows that it learns
/// from. The mean far from these is the mean of what they have.
class GaussianProcess {
 public:
  struct Estimate {
    double value = 0;
    /// How far rows like this one were from what was learned of them; a typical one.
    double spread = 0;
  };

  /// More rows cost the third power of their number; a draw of so many is learned from.
  static constexpr std::size_t kMostRows = 10000;

  /// `rows`: of equal length; `targets`: of each. Columns that do not vary count for nothing. At
  /// most `most` rows are learned from.
  void fit(const std::vector<std::vector<double>>& rows, const std::vector<double>& targets,
           std::uint64_t seed, std::size_t most = kMostRows);
  /// Throws base::UsageError if the row has other columns than those that it was fitted to.
  [[nodiscard]] Estimate predict(std::span<const double> row) const;

  [[nodiscard]] nlohmann::json to_json() const;
  /// Throws base::UsageError if the object was not made by to_json().
  [[nodiscard]] static GaussianProcess of(const nlohmann::json& saved);

 private:
  using Point = std::vector<float>;
  /// Of the kernels of a row and the points, above the mean of what was learned.
  struct Sum {
    std::vector<double> weights;
    double level = 0;
  };
  [[nodiscard]] std::size_t columns() const { return mean_.size(); }
  void fit_scale(const std::vector<std::vector<double>>& rows,
                 const std::vector<std::size_t>& chosen);
  void learn(const std::vector<double>& targets);
  [[nodiscard]] Point scaled(std::span<const double> row) const;
  [[nodiscard]] std::vector<float> kernel_matrix() const;
  [[nodiscard]] double kernel(const float* a, const float* b) const;

  std::vector<double> mean_;   ///< By column.
  std::vector<double> scale_;  ///< One over the deviation; 0 for a column that does not vary.
  std::vector<std::int16_t> points_;  ///< The rows, scaled, in steps of kStep.
  std::vector<float> floats_;         ///< The same as numbers.
  Sum value_;
  Sum log_square_;     ///< Of what the points themselves were missed by.
  double length_ = 1;  ///< Of the kernel, for the distance of two scaled rows.
};

}  // namespace sluice::predictor
