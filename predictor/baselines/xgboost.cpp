#include <xgboost/c_api.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "base/error.hpp"
#include "predictor/baselines/model.hpp"
#include "predictor/math/box_cox.hpp"

namespace sluice::predictor {
namespace {

/// Mean and maximum of each feature, the number of leaves, the device.
constexpr std::size_t kColumns = 2 * kFeatures + 1 + kDeviceNumbers;
constexpr int kRounds = 400;
/// With fewer rows, threads wait for each other most of the time.
constexpr std::size_t kWorthThreads = 4096;
/// A tuning label counts at most as much as so many others.
constexpr double kMostWeight = 20;

void check(int failed) {
  if (failed != 0) throw base::RunError(std::string("XGBoost: ") + XGBGetLastError());
}

struct FreeMatrix {
  void operator()(void* handle) const { XGDMatrixFree(handle); }
};
struct FreeBooster {
  void operator()(void* handle) const { XGBoosterFree(handle); }
};
using Matrix = std::unique_ptr<void, FreeMatrix>;
using Booster = std::unique_ptr<void, FreeBooster>;

Matrix matrix_of(const Dataset& data, const std::vector<DeviceInfo>& devices,
                 std::span<const Query> queries) {
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
  }
  DMatrixHandle handle = nullptr;
  check(XGDMatrixCreateFromMat(rows.data(), queries.size(), kColumns, std::nanf(""), &handle));
  return Matrix(handle);
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
    const Matrix matrix = matrix_of(lesson.data, lesson.devices, queries_of(labels));
    check(XGDMatrixSetFloatInfo(matrix.get(), "label", values.data(), values.size()));
    check(XGDMatrixSetFloatInfo(matrix.get(), "weight", weights.data(), weights.size()));
    boost(matrix, labels.size());
  }

  [[nodiscard]] std::vector<double> predict(const Dataset& data,
                                            const std::vector<DeviceInfo>& devices,
                                            std::span<const Query> queries) const override {
    const Matrix matrix = matrix_of(data, devices, queries);
    bst_ulong count = 0;
    const float* labels = nullptr;
    check(XGBoosterPredict(booster_.get(), matrix.get(), 0, 0, 0, &count, &labels));
    std::vector<double> seconds;
    for (bst_ulong i = 0; i < count; ++i) seconds.push_back(scale_.to_seconds(labels[i]));
    return seconds;
  }

 private:
  void boost(const Matrix& matrix, std::size_t rows) {
    BoosterHandle handle = nullptr;
    const DMatrixHandle matrices[] = {matrix.get()};
    check(XGBoosterCreate(matrices, 1, &handle));
    booster_.reset(handle);
    const std::vector<std::pair<std::string, std::string>> parameters{
        {"objective", "reg:squarederror"},
        {"tree_method", "hist"},
        {"max_depth", "8"},
        {"eta", "0.1"},
        {"subsample", "0.8"},
        {"colsample_bytree", "0.8"},
        {"seed", std::to_string(seed_)},
        {"verbosity", "0"},
        {"nthread", rows < kWorthThreads ? "1" : "0"}};
    for (const auto& [name, value] : parameters) {
      check(XGBoosterSetParam(handle, name.c_str(), value.c_str()));
    }
    for (int round = 0; round < kRounds; ++round) {
      check(XGBoosterUpdateOneIter(handle, round, matrix.get()));
    }
  }

  std::uint64_t seed_;
  LabelScale scale_;
  Booster booster_;
};

}  // namespace

std::unique_ptr<LatencyModel> make_xgboost(std::uint64_t seed) {
  return std::make_unique<XgBoost>(seed);
}

}  // namespace sluice::predictor
