#pragma once
#include <span>
#include <string>
#include <vector>

#include "predictor/data/dataset.hpp"

namespace sluice::predictor {

/// How well predicted times agree with measured ones. Shares are from 0 to 1; NaN where the sample
/// does not have what a metric needs.
struct Metrics {
  std::size_t count = 0;
  double mape = 0;    ///< Mean of |predicted - measured| / measured.
  double median = 0;  ///< Of the same.
  double rmse = 0;    ///< Seconds.
  double r2 = 0;      ///< Coefficient of determination, of seconds.
  double pairs = 0;   ///< Share of pairs of programs of one task that are in the right order.
  double top1 = 0;    ///< Share of tasks whose fastest program is predicted to be the fastest.
  double top5 = 0;    ///< Share of tasks whose fastest program is among the five fastest predicted.
  double peak1 = 0;   ///< Time of the fastest programs over that of those predicted to be.
  double peak5 = 0;   ///< The same, of the best of the five fastest predicted.
  double within5 = 0;  ///< Share of predictions that are off by at most 5 %.
  double within10 = 0;
  double within20 = 0;
};

/// The labels may be of several tasks; a ranking is among the programs of one task on one device.
/// `weights` by task, for peak1 and peak5: how often networks call it; empty: all the same.
[[nodiscard]] Metrics measure(const Dataset& data, std::span<const Label> labels,
                              std::span<const double> predicted,
                              std::span<const double> weights = {});

/// Name and value of each metric, in the order of the columns of metrics.csv.
[[nodiscard]] std::vector<std::pair<std::string, double>> columns(const Metrics& metrics);

/// |predicted - measured| / measured.
[[nodiscard]] double relative_error(double measured, double predicted);

}  // namespace sluice::predictor
