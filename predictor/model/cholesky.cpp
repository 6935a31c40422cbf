#include "predictor/model/cholesky.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/error.hpp"

// Clones for wider vectors, from which the loader chooses.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define SLUICE_FOR_EACH_CPU __attribute__((target_clones("arch=haswell", "default")))
#else
#define SLUICE_FOR_EACH_CPU
#endif

namespace sluice::predictor {
namespace {

constexpr std::size_t kBlock = 64;
constexpr std::size_t kWide = 8;  ///< Numbers of a vector.
using Wide = float __attribute__((vector_size(kWide * sizeof(float))));

/// Calls `work` for 0 to count - 1, each on one of several threads.
template <class Work>
void in_parallel(std::size_t count, Work work) {
  std::atomic<std::size_t> next{0};
  const auto run = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::jthread> others;
  const std::size_t threads = std::min<std::size_t>(count, std::thread::hardware_concurrency());
  for (std::size_t t = 1; t < threads; ++t) others.emplace_back(run);
  run();
}

/// The dot products of each of `rows` rows of `a` with each of `columns` rows of `b`, subtracted
/// from `into`. The rows have `length` numbers, a multiple of kWide, and begin `stride` apart.
SLUICE_FOR_EACH_CPU
void subtract_products(const float* a, std::size_t rows, const float* b, std::size_t columns,
                       std::size_t length, std::size_t stride, float* into,
                       std::size_t into_stride) {
  constexpr std::size_t kTile = 3;
  for (std::size_t i = 0; i < rows; i += kTile) {
    for (std::size_t j = 0; j < columns; j += kTile) {
      const std::size_t tall = std::min(kTile, rows - i);
      const std::size_t broad = std::min(kTile, columns - j);
      Wide sums[kTile][kTile] = {};
      std::array<const float*, kTile> left{};
      std::array<const float*, kTile> right{};
      for (std::size_t t = 0; t < kTile; ++t) {
        left[t] = a + (i + std::min(t, tall - 1)) * stride;
        right[t] = b + (j + std::min(t, broad - 1)) * stride;
      }
      for (std::size_t k = 0; k < length; k += kWide) {
        Wide of_left[kTile];
        Wide of_right[kTile];
        for (std::size_t t = 0; t < kTile; ++t) {
          std::memcpy(&of_left[t], left[t] + k, sizeof(Wide));
          std::memcpy(&of_right[t], right[t] + k, sizeof(Wide));
        }
        for (std::size_t y = 0; y < kTile; ++y) {
          for (std::size_t x = 0; x < kTile; ++x) sums[y][x] += of_left[y] * of_right[x];
        }
      }
      for (std::size_t y = 0; y < tall; ++y) {
        for (std::size_t x = 0; x < broad; ++x) {
          float sum = 0;
          for (std::size_t lane = 0; lane < kWide; ++lane) sum += sums[y][x][lane];
          into[(i + y) * into_stride + j + x] -= sum;
        }
      }
    }
  }
}

/// The block on the diagonal, of which all products with earlier columns are subtracted.
void factor_block(float* block, std::size_t size, std::size_t stride) {
  for (std::size_t j = 0; j < size; ++j) {
    double diagonal = block[j * stride + j];
    for (std::size_t k = 0; k < j; ++k) {
      diagonal -= static_cast<double>(block[j * stride + k]) * block[j * stride + k];
    }
    if (!(diagonal > 0)) throw base::RunError("a matrix of kernels is not positive definite");
    const double root = std::sqrt(diagonal);
    block[j * stride + j] = static_cast<float>(root);
    for (std::size_t i = j + 1; i < size; ++i) {
      double value = block[i * stride + j];
      for (std::size_t k = 0; k < j; ++k) {
        value -= static_cast<double>(block[i * stride + k]) * block[j * stride + k];
      }
      block[i * stride + j] = static_cast<float>(value / root);
    }
  }
}

/// Rows below that block: x L^T = b for each.
void solve_rows(float* rows, std::size_t count, const float* block, std::size_t size,
                std::size_t stride) {
  for (std::size_t i = 0; i < count; ++i) {
    float* row = rows + i * stride;
    for (std::size_t j = 0; j < size; ++j) {
      float value = row[j];
      for (std::size_t k = 0; k < j; ++k) value -= row[k] * block[j * stride + k];
      row[j] = value / block[j * stride + j];
    }
  }
}

}  // namespace

void cholesky(std::vector<float>& matrix, std::size_t n) {
  float* const m = matrix.data();
  for (std::size_t begin = 0; begin < n; begin += kBlock) {
    const std::size_t size = std::min(kBlock, n - begin);
    float* const diagonal = m + begin * n + begin;
    subtract_products(m + begin * n, size, m + begin * n, size, begin, n, diagonal, n);
    factor_block(diagonal, size, n);
    const std::size_t below = begin + size;
    in_parallel((n - below + kBlock - 1) / kBlock, [&](std::size_t number) {
      const std::size_t first = below + number * kBlock;
      const std::size_t rows = std::min(kBlock, n - first);
      float* const block = m + first * n + begin;
      subtract_products(m + first * n, rows, m + begin * n, size, begin, n, block, n);
      solve_rows(block, rows, diagonal, size, n);
    });
  }
}

void cholesky_solve(const std::vector<float>& lower, std::size_t n, std::vector<double>& x) {
  for (std::size_t i = 0; i < n; ++i) {
    const float* row = lower.data() + i * n;
    for (std::size_t k = 0; k < i; ++k) x[i] -= row[k] * x[k];
    x[i] /= row[i];
  }
  for (std::size_t i = n; i-- > 0;) {
    const float* row = lower.data() + i * n;
    x[i] /= row[i];
    for (std::size_t k = 0; k < i; ++k) x[k] -= row[k] * x[i];
  }
}

}  // namespace sluice::predictor
