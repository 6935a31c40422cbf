#include "predictor/math/box_cox.hpp"

#include <algorithm>
#include <boost/math/tools/minima.hpp>
#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace sluice::predictor {
namespace {

/// Times in seconds are so small that their powers leave the range of doubles; microseconds do not.
constexpr double kMicroseconds = 1e6;
constexpr double kMostLambda = 5;
constexpr double kBeyond = 4;

struct Moments {
  double mean = 0;
  double variance = 0;
};

Moments moments(std::span<const double> sample) {
  Moments m;
  for (const double x : sample) m.mean += x;
  m.mean /= static_cast<double>(sample.size());
  for (const double x : sample) m.variance += (x - m.mean) * (x - m.mean);
  m.variance /= static_cast<double>(sample.size());
  return m;
}

/// Without the terms that do not depend on lambda.
double log_likelihood(std::span<const double> logs, double lambda) {
  std::vector<double> transformed(logs.size());
  double sum_of_logs = 0;
  for (std::size_t i = 0; i < logs.size(); ++i) {
    transformed[i] = box_cox(std::exp(logs[i]), lambda);
    sum_of_logs += logs[i];
  }
  const double n = static_cast<double>(logs.size());
  return (lambda - 1) * sum_of_logs - n / 2 * std::log(moments(transformed).variance);
}

double transform(LabelScale::Kind kind, double microseconds, double lambda) {
  switch (kind) {
    case LabelScale::Kind::kBoxCox:
      return box_cox(microseconds, lambda);
    case LabelScale::Kind::kLog:
      return std::log(microseconds);
    case LabelScale::Kind::kNone:
      break;
  }
  return microseconds;
}

}  // namespace

double box_cox(double y, double lambda) {
  // Close to 0 the quotient loses its digits, and the logarithm is its limit.
  return std::abs(lambda) < 1e-9 ? std::log(y) : std::expm1(lambda * std::log(y)) / lambda;
}

double box_cox_lambda(std::span<const double> sample) {
  std::vector<double> logs;
  logs.reserve(sample.size());
  for (const double y : sample) logs.push_back(std::log(y));
  const auto minimum = boost::math::tools::brent_find_minima(
      [&](double lambda) { return -log_likelihood(logs, lambda); }, -kMostLambda, kMostLambda,
      std::numeric_limits<double>::digits / 2);
  return minimum.first;
}

LabelScale::LabelScale(Kind kind, std::span<const double> seconds) : kind_(kind) {
  std::vector<double> sample;
  sample.reserve(seconds.size());
  for (const double s : seconds) {
    if (!(s > 0)) throw base::UsageError("a measured time is not positive; measure it again");
    sample.push_back(s * kMicroseconds);
  }
  if (!sample.empty()) least_ = most_ = seconds[0];
  widen(seconds);
  if (least_ == most_) {
    throw base::UsageError("the measured times do not differ, so there is nothing to learn");
  }
  if (kind == Kind::kBoxCox) lambda_ = box_cox_lambda(sample);
  for (double& y : sample) y = transform(kind_, y, lambda_);
  const Moments m = moments(sample);
  mean_ = m.mean;
  deviation_ = std::sqrt(m.variance);
  shift_ = 1 - (*std::ranges::min_element(sample) - mean_) / deviation_;
}

LabelScale::LabelScale(Kind kind, double lambda, double mean, double deviation, double shift,
                       double least, double most)
    : kind_(kind),
      lambda_(lambda),
      mean_(mean),
      deviation_(deviation),
      shift_(shift),
      least_(least),
      most_(most) {}

void LabelScale::widen(std::span<const double> seconds) {
  for (const double s : seconds) {
    least_ = std::min(least_, s);
    most_ = std::max(most_, s);
  }
}

double LabelScale::to_label(double seconds) const {
  return (transform(kind_, seconds * kMicroseconds, lambda_) - mean_) / deviation_ + shift_;
}

double LabelScale::to_seconds(double label) const {
  const double y = (label - shift_) * deviation_ + mean_;
  const double least = least_ / kBeyond;
  const double most = most_ * kBeyond;
  double microseconds = y;
  if (kind_ == Kind::kLog || (kind_ == Kind::kBoxCox && std::abs(lambda_) < 1e-9)) {
    microseconds = std::exp(y);
  } else if (kind_ == Kind::kBoxCox) {
    // The transformation of lambda < 0 stays below -1 / lambda, that of lambda > 0 above it.
    const double power = lambda_ * y + 1;
    if (power <= 0) return lambda_ < 0 ? most : least;
    microseconds = std::exp(std::log(power) / lambda_);
  }
  return std::clamp(microseconds / kMicroseconds, least, most);
}

std::string to_text(LabelScale::Kind kind) {
  switch (kind) {
    case LabelScale::Kind::kBoxCox:
      return "boxcox";
    case LabelScale::Kind::kLog:
      return "log";
    case LabelScale::Kind::kNone:
      break;
  }
  return "none";
}

LabelScale::Kind label_kind(const std::string& word) {
  for (const auto kind :
       {LabelScale::Kind::kBoxCox, LabelScale::Kind::kLog, LabelScale::Kind::kNone}) {
    if (to_text(kind) == word) return kind;
  }
  throw base::UsageError("labels: '" + word + "' is not one of boxcox, log, none");
}

}  // namespace sluice::predictor
