#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

/// What an expression of a kernel reads, and what it computes.
namespace sluice::predictor {

/// An access to an array.
struct Reference {
  std::string_view array;
  std::string_view index;
  std::int64_t elements = 1;  ///< Of a vector.
};

/// Operations on floating-point numbers: those outside the indices of references.
struct Arithmetic {
  double multiplications = 0;
  double additions = 0;
  double divisions = 0;
  double functions = 0;
  double shuffles = 0;
  double extremes = 0;
};

[[nodiscard]] bool is_name(char c);

/// The number that a text begins with, 1e12 at most; 0 without one.
[[nodiscard]] double to_number(std::string_view digits);

/// The place of the bracket that closes the one at `open`.
[[nodiscard]] std::size_t counterpart(std::string_view text, std::size_t open);

/// The references of an expression, inner ones first; adds the rest to `rest`. `is_array`: of a
/// name. Other names with an index count as nothing.
[[nodiscard]] std::vector<Reference> references(
    std::string_view text, const std::function<bool(std::string_view)>& is_array, Arithmetic& rest);

}  // namespace sluice::predictor
