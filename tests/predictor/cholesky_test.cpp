// A wrong solution of a large system looks like a bad model.
#include "predictor/model/cholesky.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.hpp"
#include "predictor/model/gaussian_process.hpp"

namespace sluice::predictor {
namespace {

/// 200 rows are three blocks and a part of one.
TEST(Cholesky, SolvesWhatItFactored) {
  constexpr std::size_t kRows = 200;
  std::mt19937_64 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> factor(kRows * kRows);
  for (float& x : factor) x = normal(random);
  std::vector<float> matrix(kRows * kRows);
  for (std::size_t i = 0; i < kRows; ++i) {
    for (std::size_t j = 0; j < kRows; ++j) {
      for (std::size_t k = 0; k < kRows; ++k) {
        matrix[i * kRows + j] += factor[i * kRows + k] * factor[j * kRows + k];
      }
    }
    matrix[i * kRows + i] += kRows;
  }
  std::vector<double> wanted(kRows);
  for (double& x : wanted) x = normal(random);
  std::vector<double> solved(kRows, 0);
  for (std::size_t i = 0; i < kRows; ++i) {
    for (std::size_t j = 0; j < kRows; ++j) solved[i] += matrix[i * kRows + j] * wanted[j];
  }
  std::vector<float> lower = matrix;
  cholesky(lower, kRows);
  cholesky_solve(lower, kRows, solved);
  for (std::size_t i = 0; i < kRows; ++i) EXPECT_NEAR(solved[i], wanted[i], 1e-3) << i;
}

TEST(Cholesky, RefusesWhatHasNoRoot) {
  std::vector<float> matrix{1, 0, 2, 1};
  EXPECT_THROW(cholesky(matrix, 2), base::RunError);
}

/// sin(x) + y from 400 points, and a column that does not vary.
TEST(GaussianProcess, LearnsAFunctionAndSurvivesSaving) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> anywhere(-2, 2);
  std::vector<std::vector<double>> rows;
  std::vector<double> targets;
  const auto f = [](double x, double y) { return std::sin(x) + y; };
  for (int i = 0; i < 400; ++i) {
    rows.push_back({anywhere(random), 7, anywhere(random)});
    targets.push_back(f(rows.back()[0], rows.back()[2]));
  }
  GaussianProcess process;
  process.fit(rows, targets, 0);
  for (int i = 0; i < 50; ++i) {
    const std::vector<double> row{0.8 * anywhere(random), 7, 0.8 * anywhere(random)};
    EXPECT_NEAR(process.predict(row).value, f(row[0], row[2]), 0.1);
  }
  const auto bytes = nlohmann::json::to_cbor(process.to_json());
  const auto loaded = GaussianProcess::of(nlohmann::json::from_cbor(bytes));
  EXPECT_EQ(loaded.predict(rows[3]).value, process.predict(rows[3]).value);
  EXPECT_EQ(loaded.predict(rows[3]).spread, process.predict(rows[3]).spread);
  // A row that is unlike all others must not be extrapolated to.
  EXPECT_LT(std::abs(process.predict(std::vector<double>{1e9, 7, 1e9}).value), 8);
}

// What a prediction is worth differs between programs: rows with x > 0 have noise of 0.5.
TEST(GaussianProcess, SaysHowFarItWasOff) {
  std::vector<std::vector<double>> rows;
  std::vector<double> targets;
  for (int i = -150; i < 150; ++i) {
    rows.push_back({i / 50.0});
    targets.push_back(i < 0 ? 1 : 1 + 0.5 * ((i * 7919) % 5 - 2));
  }
  GaussianProcess process;
  process.fit(rows, targets, 0);
  const auto spread = [&](double x) { return process.predict(std::vector{x}).spread; };
  EXPECT_GT(spread(1.5), 10 * spread(-1.5));
  EXPECT_GT(spread(1.5), 0.2);
  EXPECT_LT(spread(1.5), 1);
}

TEST(GaussianProcess, LearnsFromADrawOfManyRows) {
  std::vector<std::vector<double>> rows;
  for (int i = 0; i < 50; ++i) rows.push_back({static_cast<double>(i)});
  const auto points = [&](std::uint64_t seed) {
    GaussianProcess process;
    process.fit(rows, std::vector<double>(50, 1), seed, 20);
    return process.to_json().at("points").get_binary();
  };
  EXPECT_EQ(points(1).size(), 20 * sizeof(std::int16_t));
  EXPECT_EQ(points(1), points(1));
  EXPECT_NE(points(1), points(2));
}

TEST(GaussianProcess, LearnsFromOneRow) {
  GaussianProcess process;
  process.fit({{1, 2}}, {5}, 0);
  EXPECT_NEAR(process.predict(std::vector<double>{3, 4}).value, 5, 1e-6);
}

}  // namespace
}  // namespace sluice::predictor
