#pragma once
#include <cstddef>
#include <vector>

namespace sluice::predictor {

/// A symmetric positive definite matrix of n rows, row by row: its lower triangle is replaced by L
/// with L L^T = A. Uses the cores of the machine; the result does not depend on their number.
/// Throws base::RunError if the matrix is not positive definite.
void cholesky(std::vector<float>& matrix, std::size_t n);

/// Solves L L^T x = b, in place.
void cholesky_solve(const std::vector<float>& lower, std::size_t n, std::vector<double>& x);

}  // namespace sluice::predictor
