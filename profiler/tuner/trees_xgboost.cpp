#include <xgboost/c_api.h>

#include <algorithm>
#include <cmath>

#include "base/error.hpp"
#include "profiler/tuner/trees.hpp"

namespace sluice::profiler {
namespace {

void check(int result) {
  if (result != 0) throw base::RunError(std::string("XGBoost: ") + XGBGetLastError());
}

class Matrix {
 public:
  explicit Matrix(const Table& table) {
    const std::size_t columns = table.values.size() / table.rows;
    check(
        XGDMatrixCreateFromMat(table.values.data(), table.rows, columns, std::nanf(""), &handle_));
  }
  ~Matrix() { XGDMatrixFree(handle_); }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;
  [[nodiscard]] DMatrixHandle get() const { return handle_; }

 private:
  DMatrixHandle handle_ = nullptr;
};

}  // namespace

bool has_xgboost() { return true; }

struct Trees::Booster {
  explicit Booster(DMatrixHandle matrix) { check(XGBoosterCreate(&matrix, 1, &handle)); }
  ~Booster() { XGBoosterFree(handle); }
  Booster(const Booster&) = delete;
  Booster& operator=(const Booster&) = delete;
  BoosterHandle handle = nullptr;
};

Trees::Trees() = default;
Trees::~Trees() = default;

void Trees::fit(const Table& table, const std::vector<float>& labels,
                const std::vector<float>& weights, const Parameters& parameters, int rounds) {
  const Matrix matrix(table);
  check(XGDMatrixSetFloatInfo(matrix.get(), "label", labels.data(), labels.size()));
  if (!weights.empty()) {
    check(XGDMatrixSetFloatInfo(matrix.get(), "weight", weights.data(), weights.size()));
  }
  booster_ = std::make_unique<Booster>(matrix.get());
  for (const auto& [name, value] : parameters) {
    check(XGBoosterSetParam(booster_->handle, name.c_str(), value.c_str()));
    if (name == "objective" && value.starts_with("rank")) {
      const auto all = static_cast<unsigned>(table.rows);
      check(XGDMatrixSetUIntInfo(matrix.get(), "group", &all, 1));
    }
  }
  check(XGBoosterSetParam(booster_->handle, "verbosity", "0"));
  for (int round = 0; round < rounds; ++round) {
    check(XGBoosterUpdateOneIter(booster_->handle, round, matrix.get()));
  }
}

std::vector<float> Trees::predict(const Table& table) const {
  if (table.rows == 0) return {};
  const Matrix matrix(table);
  constexpr const char* kAllTrees =
      R"({"type": 0, "training": false, "iteration_begin": 0, "iteration_end": 0, "strict_shape": false})";
  const bst_ulong* shape = nullptr;
  bst_ulong dimensions = 0;
  const float* result = nullptr;
  check(XGBoosterPredictFromDMatrix(booster_->handle, matrix.get(), kAllTrees, &shape, &dimensions,
                                    &result));
  return {result, result + table.rows};
}

}  // namespace sluice::profiler
