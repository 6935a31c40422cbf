#include "predictor/math/metrics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "base/statistics.hpp"

namespace sluice::predictor {
namespace {

/// Programs of one task on one device.
struct Group {
  std::vector<double> measured;
  std::vector<double> predicted;
  double weight = 1;
};

std::vector<Group> groups_of(const Dataset& data, std::span<const Label> labels,
                             std::span<const double> predicted, std::span<const double> weights) {
  std::map<std::pair<std::size_t, std::size_t>, Group> groups;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const std::size_t task = data.programs[labels[i].query.program].task;
    Group& group = groups[{task, labels[i].query.device}];
    group.measured.push_back(labels[i].seconds);
    group.predicted.push_back(predicted[i]);
    if (!weights.empty()) group.weight = weights[task];
  }
  std::vector<Group> found;
  for (auto& [key, group] : groups) {
    if (group.measured.size() > 1) found.push_back(std::move(group));
  }
  return found;
}

double share(double part, double whole) {
  return whole > 0 ? part / whole : std::numeric_limits<double>::quiet_NaN();
}

double ordered_pairs(const std::vector<Group>& groups) {
  double right = 0;
  double all = 0;
  for (const Group& group : groups) {
    for (std::size_t i = 0; i < group.measured.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (group.measured[i] == group.measured[j]) continue;
        const bool slower = group.measured[i] > group.measured[j];
        all += 1;
        // Equal predictions say nothing of the order.
        if (group.predicted[i] == group.predicted[j]) {
          right += 0.5;
        } else if ((group.predicted[i] > group.predicted[j]) == slower) {
          right += 1;
        }
      }
    }
  }
  return share(right, all);
}

/// The fastest measured time of the `count` programs that are predicted to be the fastest.
double best_of_predicted(const Group& group, std::size_t count) {
  std::vector<std::size_t> order(group.measured.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Labels come in the order of time, so among equal predictions the slowest must come first.
  std::ranges::sort(
      order, {}, [&](std::size_t i) { return std::pair(group.predicted[i], -group.measured[i]); });
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < std::min(count, order.size()); ++i) {
    best = std::min(best, group.measured[order[i]]);
  }
  return best;
}

struct Ranking {
  double recall = 0;
  double peak = 0;
};

Ranking ranking(const std::vector<Group>& groups, std::size_t count) {
  double found = 0;
  double all = 0;
  double best = 0;
  double chosen = 0;
  for (const Group& group : groups) {
    // The best of five among five is no achievement.
    if (group.measured.size() <= count) continue;
    const double fastest = *std::ranges::min_element(group.measured);
    const double predicted = best_of_predicted(group, count);
    all += 1;
    if (predicted == fastest) found += 1;
    best += group.weight * fastest;
    chosen += group.weight * predicted;
  }
  return {share(found, all), share(best, chosen)};
}

double within(std::span<const Label> labels, std::span<const double> predicted, double bound) {
  double good = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (relative_error(labels[i].seconds, predicted[i]) <= bound) good += 1;
  }
  return share(good, static_cast<double>(labels.size()));
}

}  // namespace

double relative_error(double measured, double predicted) {
  return std::abs(predicted - measured) / measured;
}

Metrics measure(const Dataset& data, std::span<const Label> labels,
                std::span<const double> predicted, std::span<const double> weights) {
  Metrics metrics;
  metrics.count = labels.size();
  const double n = static_cast<double>(labels.size());
  double relative = 0;
  std::vector<double> errors;
  double squared = 0;
  double mean = 0;
  for (const Label& label : labels) mean += label.seconds / n;
  double spread = 0;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const double measured = labels[i].seconds;
    errors.push_back(relative_error(measured, predicted[i]));
    relative += errors.back();
    squared += (predicted[i] - measured) * (predicted[i] - measured);
    spread += (measured - mean) * (measured - mean);
  }
  metrics.mape = share(relative, n);
  if (!errors.empty()) metrics.median = base::percentile(errors, 0.5);
  metrics.rmse = std::sqrt(share(squared, n));
  metrics.r2 = 1 - share(squared, spread);
  const auto groups = groups_of(data, labels, predicted, weights);
  metrics.pairs = ordered_pairs(groups);
  const Ranking one = ranking(groups, 1);
  const Ranking five = ranking(groups, 5);
  metrics.top1 = one.recall;
  metrics.peak1 = one.peak;
  metrics.top5 = five.recall;
  metrics.peak5 = five.peak;
  metrics.within5 = within(labels, predicted, 0.05);
  metrics.within10 = within(labels, predicted, 0.10);
  metrics.within20 = within(labels, predicted, 0.20);
  return metrics;
}

std::vector<std::pair<std::string, double>> columns(const Metrics& m) {
  return {{"count", static_cast<double>(m.count)},
          {"mape", m.mape},
          {"median", m.median},
          {"rmse_s", m.rmse},
          {"r2", m.r2},
          {"pairs", m.pairs},
          {"top1", m.top1},
          {"top5", m.top5},
          {"peak1", m.peak1},
          {"peak5", m.peak5},
          {"within5", m.within5},
          {"within10", m.within10},
          {"within20", m.within20}};
}

}  // namespace sluice::predictor
