#include <xgboost/c_api.h>

#include <array>

#include "base/error.hpp"
#include "profiler/tuner/trees.hpp"
#include "profiler/tuner/xgb_tuner.hpp"

namespace sluice::profiler {
namespace {

void check(int result) {
  if (result != 0) throw base::RunError(std::string("XGBoost: ") + XGBGetLastError());
}

class Matrix {
 public:
  explicit Matrix(const Rows& rows) {
    std::vector<float> flat;
    for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
    check(XGDMatrixCreateFromMat(flat.data(), rows.size(), rows.front().size(), -1e30F, &handle_));
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
  ~Booster() {
    if (handle != nullptr) XGBoosterFree(handle);
  }
  BoosterHandle handle = nullptr;
};

Trees::Trees(std::string objective, std::uint64_t seed)
    : objective_(std::move(objective)), seed_(seed) {}
Trees::~Trees() = default;

void Trees::fit(const Rows& rows, const std::vector<float>& labels, int rounds) {
  const Matrix matrix(rows);
  check(XGDMatrixSetFloatInfo(matrix.get(), "label", labels.data(), labels.size()));
  if (objective_.starts_with("rank")) {
    const auto all = static_cast<unsigned>(rows.size());
    check(XGDMatrixSetUIntInfo(matrix.get(), "group", &all, 1));
  }
  booster_ = std::make_unique<Booster>();
  const DMatrixHandle handle = matrix.get();
  check(XGBoosterCreate(&handle, 1, &booster_->handle));
  // AutoTVM's parameters.
  const std::string seed = std::to_string(seed_ % 1'000'000);
  const std::array<std::pair<const char*, const char*>, 9> parameters{{
      {"objective", objective_.c_str()},
      {"max_depth", "6"},
      {"gamma", "0.0001"},
      {"min_child_weight", "1"},
      {"subsample", "1.0"},
      {"eta", "0.3"},
      {"lambda", "1.0"},
      {"verbosity", "0"},
      {"seed", seed.c_str()},
  }};
  for (const auto& [name, value] : parameters) {
    check(XGBoosterSetParam(booster_->handle, name, value));
  }
  // A few thousand rows: on a busy machine, more threads cost a hundred times as long.
  check(XGBoosterSetParam(booster_->handle, "nthread", "1"));
  for (int round = 0; round < rounds; ++round) {
    check(XGBoosterUpdateOneIter(booster_->handle, round, matrix.get()));
  }
}

std::vector<float> Trees::predict(const Rows& rows) const {
  if (rows.empty()) return {};
  const Matrix matrix(rows);
  bst_ulong length = 0;
  const float* result = nullptr;
  check(XGBoosterPredict(booster_->handle, matrix.get(), 0, 0, 0, &length, &result));
  return {result, result + length};
}

}  // namespace sluice::profiler
