#include "predictor/model/gaussian_process.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>

#include "base/error.hpp"
#include "predictor/model/binary.hpp"
#include "predictor/model/cholesky.hpp"

namespace sluice::predictor {
namespace {

// Chosen by cross-validation over networks that do not test (docs/results/opbench.md).
constexpr double kLength = 1.5;  ///< Of the kernel, for a mean difference of 1 in each column.
constexpr double kNoise = 0.05;  ///< Variance of what the columns do not say, of 1 in all.
constexpr double kFarthest = 4;  ///< Deviations: a row that is unlike all others counts so far.
constexpr double kStep = 1.0 / 8000;   ///< Of a saved number.
constexpr int kRefinements = 2;        ///< Of a solution in single precision.
constexpr double kLeastSquare = 1e-4;  ///< Of what a point is missed by; smaller ones are chance.

/// The numbers of at most `most` rows, in their order.
std::vector<std::size_t> draw(std::size_t rows, std::size_t most, std::uint64_t seed) {
  std::vector<std::size_t> chosen(rows);
  std::iota(chosen.begin(), chosen.end(), std::size_t{0});
  if (rows <= most) return chosen;
  std::mt19937_64 random(seed);
  std::ranges::shuffle(chosen, random);
  chosen.resize(most);
  std::ranges::sort(chosen);
  return chosen;
}

/// The weights of the points: `matrix`, which is L L^T, times them is `wanted`.
std::vector<double> solve(const std::vector<float>& matrix, const std::vector<float>& lower,
                          const std::vector<double>& wanted) {
  const std::size_t n = wanted.size();
  std::vector<double> weights(n, 0);
  std::vector<double> rest = wanted;
  for (int round = 0; round <= kRefinements; ++round) {
    cholesky_solve(lower, n, rest);
    for (std::size_t i = 0; i < n; ++i) weights[i] += rest[i];
    rest = wanted;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const double k = matrix[i * n + j];
        rest[i] -= k * weights[j];
        rest[j] -= k * weights[i];
      }
      rest[i] -= static_cast<double>(matrix[i * n + i]) * weights[i];
    }
  }
  return weights;
}

}  // namespace

double GaussianProcess::kernel(const float* a, const float* b) const {
  float square = 0;
  for (std::size_t c = 0; c < columns(); ++c) square += (a[c] - b[c]) * (a[c] - b[c]);
  const double distance = std::sqrt(3.0 * static_cast<double>(square)) / length_;
  return (1 + distance) * std::exp(-distance);
}

GaussianProcess::Point GaussianProcess::scaled(std::span<const double> row) const {
  Point point(columns());
  for (std::size_t c = 0; c < columns(); ++c) {
    const double z = std::clamp((row[c] - mean_[c]) * scale_[c], -kFarthest, kFarthest);
    point[c] = static_cast<float>(std::lround(z / kStep)) * static_cast<float>(kStep);
  }
  return point;
}

std::vector<float> GaussianProcess::kernel_matrix() const {
  const std::size_t n = points_.size() / columns();
  std::vector<float> matrix(n * n, 0.0F);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j <= i; ++j) {
      matrix[i * n + j] = static_cast<float>(
          kernel(floats_.data() + i * columns(), floats_.data() + j * columns()));
    }
    matrix[i * n + i] += static_cast<float>(kNoise);
  }
  return matrix;
}

void GaussianProcess::fit(const std::vector<std::vector<double>>& rows,
                          const std::vector<double>& targets, std::uint64_t seed,
                          std::size_t most) {
  const std::vector<std::size_t> chosen = draw(rows.size(), most, seed);
  fit_scale(rows, chosen);
  points_.clear();
  floats_.clear();
  std::vector<double> wanted;
  for (const std::size_t i : chosen) {
    const Point point = scaled(rows[i]);
    floats_.insert(floats_.end(), point.begin(), point.end());
    for (const float z : point) {
      points_.push_back(static_cast<std::int16_t>(std::lround(static_cast<double>(z) / kStep)));
    }
    wanted.push_back(targets[i]);
  }
  learn(wanted);
}

/// Mean and deviation of each column.
void GaussianProcess::fit_scale(const std::vector<std::vector<double>>& rows,
                                const std::vector<std::size_t>& chosen) {
  const double n = static_cast<double>(chosen.size());
  const std::size_t width = rows.at(0).size();
  mean_.assign(width, 0);
  scale_.assign(width, 0);
  std::size_t varying = 0;
  for (std::size_t c = 0; c < width; ++c) {
    for (const std::size_t i : chosen) mean_[c] += rows[i][c] / n;
    double square = 0;
    for (const std::size_t i : chosen) square += std::pow(rows[i][c] - mean_[c], 2);
    const double deviation = std::sqrt(square / n);
    if (deviation < 1e-6) continue;
    scale_[c] = 1 / deviation;
    ++varying;
  }
  length_ = kLength * std::sqrt(static_cast<double>(std::max<std::size_t>(varying, 1)));
}

void GaussianProcess::learn(const std::vector<double>& targets) {
  const std::size_t n = targets.size();
  const std::vector<float> matrix = kernel_matrix();
  std::vector<float> lower = matrix;
  cholesky(lower, n);
  const auto learned = [&](std::vector<double> wanted) {
    Sum sum;
    sum.level = std::accumulate(wanted.begin(), wanted.end(), 0.0) / static_cast<double>(n);
    for (double& each : wanted) each -= sum.level;
    sum.weights = solve(matrix, lower, wanted);
    return sum;
  };
  value_ = learned(targets);
  std::vector<double> log_squares;
  for (const double weight : value_.weights) {
    log_squares.push_back(std::log(std::pow(kNoise * weight, 2) + kLeastSquare));
  }
  log_square_ = learned(log_squares);
}

GaussianProcess::Estimate GaussianProcess::predict(std::span<const double> row) const {
  if (row.size() != columns()) throw base::UsageError("a predictor of other features");
  const Point point = scaled(row);
  double value = value_.level;
  double log_square = log_square_.level;
  for (std::size_t i = 0; i < value_.weights.size(); ++i) {
    const double near = kernel(point.data(), floats_.data() + i * columns());
    value += value_.weights[i] * near;
    log_square += log_square_.weights[i] * near;
  }
  return {value, std::exp(log_square / 2)};
}

nlohmann::json GaussianProcess::to_json() const {
  return {{"mean", as_binary(mean_)},
          {"scale", as_binary(scale_)},
          {"points", as_binary(points_)},
          {"weights", as_binary(value_.weights)},
          {"level", value_.level},
          {"spread_weights", as_binary(log_square_.weights)},
          {"spread_level", log_square_.level},
          {"length", length_}};
}

GaussianProcess GaussianProcess::of(const nlohmann::json& saved) {
  GaussianProcess made;
  made.mean_ = from_binary<double>(saved.at("mean"));
  made.scale_ = from_binary<double>(saved.at("scale"));
  made.points_ = from_binary<std::int16_t>(saved.at("points"));
  made.value_.weights = from_binary<double>(saved.at("weights"));
  saved.at("level").get_to(made.value_.level);
  made.log_square_.weights = from_binary<double>(saved.at("spread_weights"));
  saved.at("spread_level").get_to(made.log_square_.level);
  saved.at("length").get_to(made.length_);
  if (made.scale_.size() != made.columns() ||
      made.log_square_.weights.size() != made.value_.weights.size() ||
      made.points_.size() != made.value_.weights.size() * made.columns()) {
    throw base::UsageError("the parts of a saved model do not fit each other");
  }
  for (const std::int16_t z : made.points_) {
    made.floats_.push_back(static_cast<float>(z) * static_cast<float>(kStep));
  }
  return made;
}

}  // namespace sluice::predictor
