#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "predictor/model/times.hpp"

namespace sluice::predictor {
namespace {

constexpr std::size_t kMostRows = 2500;
constexpr int kSteps = 400;
constexpr double kRate = 0.05;
constexpr double kLeast = 1e-12;  ///< Seconds.
constexpr double kHuber = 0.3;    ///< Of a logarithm: where an error begins to count less.
constexpr double kRidge = 1e-3;
constexpr double kUsual = -1;  ///< Of log_factors, before anything is known.
constexpr std::size_t kParameters = kTimes + 2;

/// The parameters of a model as one vector, and steps along it (Adam: Kingma and Ba, 2015).
class Descent {
 public:
  explicit Descent(TimeModel& model) : model_(model) {}

  void step(const std::array<double, kParameters>& slope) {
    ++steps_;
    for (std::size_t i = 0; i < kParameters; ++i) {
      mean_[i] = 0.9 * mean_[i] + 0.1 * slope[i];
      square_[i] = 0.99 * square_[i] + 0.01 * slope[i] * slope[i];
      const double mean = mean_[i] / (1 - std::pow(0.9, steps_));
      const double square = square_[i] / (1 - std::pow(0.99, steps_));
      const double rate = kRate * (1 - 0.9 * steps_ / kSteps);
      at(i) -= rate * mean / (std::sqrt(square) + 1e-9);
    }
    for (double& factor : model_.log_factors) factor = std::clamp(factor, -9.0, 6.0);
    model_.log_launch = std::clamp(model_.log_launch, -14.5, -12.0);
    model_.log_p = std::clamp(model_.log_p, std::log(0.7), std::log(4.0));
  }

 private:
  double& at(std::size_t i) {
    if (i < kTimes) return model_.log_factors[i];
    return i == kTimes ? model_.log_launch : model_.log_p;
  }

  TimeModel& model_;
  std::array<double, kParameters> mean_{};
  std::array<double, kParameters> square_{};
  int steps_ = 0;
};

/// p times the logarithm of each part: the times with their factors, and the launch.
std::array<double, kTimes + 1> parts_of(const TimeModel& model, const Times& times) {
  const double p = std::exp(model.log_p);
  std::array<double, kTimes + 1> parts{};
  for (std::size_t i = 0; i < kTimes; ++i) {
    parts[i] = p * (std::log(std::max(times[i], kLeast)) + model.log_factors[i]);
  }
  parts[kTimes] = p * model.log_launch;
  return parts;
}

double log_of_sum(const std::array<double, kTimes + 1>& logs) {
  const double most = *std::ranges::max_element(logs);
  double sum = 0;
  for (const double log : logs) sum += std::exp(log - most);
  return most + std::log(sum);
}

/// Adds the slope of the loss of one program.
void add_slope(const TimeModel& model, const Times& times, double wanted, double weight,
               std::array<double, kParameters>& slope) {
  const auto parts = parts_of(model, times);
  const double sum = log_of_sum(parts);
  const double p = std::exp(model.log_p);
  const double pull = weight * std::tanh((sum / p - wanted) / kHuber);
  double mean = 0;
  for (std::size_t i = 0; i <= kTimes; ++i) {
    const double share = std::exp(parts[i] - sum);
    slope[i] += pull * share;
    mean += share * parts[i];
  }
  slope[kTimes + 1] += pull * (mean - sum) / p;
}

}  // namespace

double TimeModel::log_seconds(const Times& times) const {
  return log_of_sum(parts_of(*this, times)) / std::exp(log_p);
}

TimeModel fit_time_model(const std::vector<Times>& times, const std::vector<double>& log_seconds,
                         std::uint64_t seed) {
  std::vector<std::size_t> rows(times.size());
  std::iota(rows.begin(), rows.end(), std::size_t{0});
  std::mt19937_64 random(seed);
  std::ranges::shuffle(rows, random);
  rows.resize(std::min(rows.size(), kMostRows));
  TimeModel model;
  model.log_factors.fill(kUsual);
  model.log_launch = std::log(2e-6);
  model.log_p = std::log(1.5);
  Descent descent(model);
  for (int step = 0; step < kSteps; ++step) {
    std::array<double, kParameters> slope{};
    for (const std::size_t row : rows) {
      add_slope(model, times[row], log_seconds[row], 1.0 / static_cast<double>(rows.size()), slope);
    }
    for (std::size_t i = 0; i < kTimes; ++i) {
      slope[i] += 2 * kRidge * (model.log_factors[i] - kUsual) / static_cast<double>(kTimes);
    }
    descent.step(slope);
  }
  return model;
}

}  // namespace sluice::predictor
