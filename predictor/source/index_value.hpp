#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string_view>
#include <unordered_map>

/// The integer expressions of a kernel, for the lanes of a few of its warps.
namespace sluice::predictor {

inline constexpr std::size_t kWarpLanes = 32;
/// Warps that stand for all warps of a kernel.
inline constexpr std::size_t kSampledWarps = 4;

using Lanes = std::array<std::int64_t, kSampledWarps * kWarpLanes>;

/// An integer expression.
struct IndexValue {
  Lanes lanes{};
  std::uint64_t loops = 0;  ///< Bit n: it varies with loop n.
};

/// An expression has something that no integer expression has, such as an element of an array.
struct NotAnIndex : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The integer variables of a kernel. Keeps views of all texts that it is given.
class Indices {
 public:
  void set(std::string_view name, const IndexValue& value);
  /// The variable has the value of an expression, which is evaluated when it is needed.
  void define(std::string_view name, std::string_view expression);
  /// Throws NotAnIndex.
  [[nodiscard]] const IndexValue& value(std::string_view expression);
  /// Changes when a variable gets another value.
  [[nodiscard]] int generation() const { return generation_; }

 private:
  friend class IndexParser;
  [[nodiscard]] const IndexValue& variable(std::string_view name);
  void forget(std::string_view name);

  int generation_ = 0;
  int depth_ = 0;  ///< Of the expression that is evaluated now.
  std::unordered_map<std::string_view, IndexValue> variables_;
  std::unordered_map<std::string_view, std::string_view> expressions_;
  std::unordered_map<std::string_view, IndexValue> values_;
};

}  // namespace sluice::predictor
