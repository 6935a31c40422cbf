#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "predictor/baselines/model.hpp"
#include "predictor/math/box_cox.hpp"
#include "profiler/tuner/trees.hpp"

namespace sluice::predictor {
namespace {

/// Mean and maximum of each feature, the number of leaves, the device, what else is known.
constexpr std::size_t kColumns = 2 * kFeatures + 1 + kDeviceNumbers + 1;
constexpr int kRounds = 400;
/// With fewer rows, threads wait for each other most of the time.
constexpr std::size_t kWorthThreads = 4096;
/// With fewer rows, a leaf of a tree may hold one of them.
constexpr std::size_t kFewRows = 1000;
/// A tuning label counts at most as much as so many others.
constexpr double kMostWeight = 20;

/// `known`: for each query one more column, which may be NaN.
profiler::Table table_of(const Dataset& data, const std::vector<DeviceInfo>& devices,
                         std::span<const Query> queries, std::span<const double> known) {
  std::vector<float> rows(queries.size() * kColumns, 0.0F);
  for (std::size_t i = 0; i < queries.size(); ++i) {
    float* row = rows.data() + i * kColumns;
    const Program& program = data.programs[queries[i].program];
    const float leaves = static_cast<float>(program.leaves.size());
    for (const Leaf& leaf : program.leaves) {
      for (std::size_t f = 0; f < kFeatures; ++f) {
        row[f] += leaf[f] / leaves;
        row[kFeatures + f] = std::max(row[kFeatures + f], leaf[f]);
      }
    }
    row[2 * kFeatures] = leaves;
    const auto device = device_numbers(devices[queries[i].device]);
    std::ranges::copy(device, row + 2 * kFeatures + 1);
    row[kColumns - 1] = known.empty() ? std::nanf("") : static_cast<float>(known[i]);
  }
  return {queries.size(), std::move(rows)};
}

/// `start`: what the trees say before they have learned anything. `penalty`: of going far from
/// that.
profiler::Trees::Parameters parameters_for(std::size_t rows, std::uint64_t seed, const char* start,
                                           const char* penalty) {
  return {{"objective", "reg:squarederror"},
          {"tree_method", "hist"},
          {"max_depth", "5"},
          {"min_child_weight", rows < kFewRows ? "1" : "5"},
          {"eta", "0.1"},
          {"subsample", "0.8"},
          {"colsample_bytree", "0.8"},
          {"base_score", start},
          {"lambda", penalty},
          {"seed", std::to_string(seed)},
          {"nthread", rows < kWorthThreads ? "1" : "0"}};
}

class XgBoost : public LatencyModel {
 public:
  explicit XgBoost(std::uint64_t seed) : seed_(seed) {}

  void fit(const Lesson& lesson) override {
    std::vector<Label> labels(lesson.train.begin(), lesson.train.end());
    labels.insert(labels.end(), lesson.tune.begin(), lesson.tune.end());
    std::vector<double> seconds;
    for (const Label& label : labels) seconds.push_back(label.seconds);
    scale_ = LabelScale(LabelScale::Kind::kBoxCox, seconds);
    std::vector<float> values;
    for (const Label& label : labels)
      values.push_back(static_cast<float>(scale_.to_label(label.seconds)));
    const double balance = lesson.tune.empty() ? 1
                                               : static_cast<double>(lesson.train.size()) /
                                                     static_cast<double>(lesson.tune.size());
    std::vector<float> weights(labels.size(), 1.0F);
    std::fill(weights.begin() + static_cast<std::ptrdiff_t>(lesson.train.size()), weights.end(),
              static_cast<float>(std::clamp(balance, 1.0, kMostWeight)));
    trees_.fit(table_of(lesson.data, lesson.devices, queries_of(labels), {}), values, weights,
               parameters_for(labels.size(), seed_, "0.5", "1"), kRounds);
  }

  [[nodiscard]] std::vector<double> predict(const Dataset& data,
                                            const std::vector<DeviceInfo>& devices,
                                            std::span<const Query> queries) const override {
    std::vector<double> seconds;
    for (const float label : trees_.predict(table_of(data, devices, queries, {}))) {
      seconds.push_back(scale_.to_seconds(label));
    }
    return seconds;
  }

 private:
  std::uint64_t seed_;
  LabelScale scale_;
  profiler::Trees trees_;
};

class Ratio : public LatencyModel {
 public:
  explicit Ratio(std::uint64_t seed) : seed_(seed) {}

  void fit(const Lesson& lesson) override {
    copied_->fit(lesson);
    const auto queries = queries_of(lesson.tune);
    const auto known = copied_->predict(lesson.data, lesson.devices, queries);
    std::vector<Query> both;
    std::vector<double> logs;
    std::vector<float> values;
    for (std::size_t i = 0; i < known.size(); ++i) {
      if (std::isnan(known[i])) continue;
      both.push_back(queries[i]);
      logs.push_back(std::log(known[i]));
      values.push_back(static_cast<float>(std::log(lesson.tune[i].seconds / known[i])));
    }
    if (both.empty()) return;
    // A few tasks do not say much: in doubt, the answer is the copy, whose log ratio is 0.
    trees_.fit(table_of(lesson.data, lesson.devices, both, logs), values, {},
               parameters_for(both.size(), seed_, "0", "10"), kRounds);
  }

  [[nodiscard]] std::vector<double> predict(const Dataset& data,
                                            const std::vector<DeviceInfo>& devices,
                                            std::span<const Query> queries) const override {
    auto seconds = copied_->predict(data, devices, queries);
    if (!trees_.fitted()) return seconds;
    std::vector<double> logs;
    for (const double known : seconds) logs.push_back(std::log(known));
    const auto ratios = trees_.predict(table_of(data, devices, queries, logs));
    for (std::size_t i = 0; i < seconds.size(); ++i) {
      seconds[i] *= std::exp(static_cast<double>(ratios[i]));
    }
    return seconds;
  }

 private:
  std::uint64_t seed_;
  std::unique_ptr<LatencyModel> copied_ = make_copied();
  profiler::Trees trees_;
};

}  // namespace

std::unique_ptr<LatencyModel> make_ratio(std::uint64_t seed) {
  return std::make_unique<Ratio>(seed);
}

std::unique_ptr<LatencyModel> make_xgboost(std::uint64_t seed) {
  return std::make_unique<XgBoost>(seed);
}

}  // namespace sluice::predictor
