#pragma once
#include <algorithm>
#include <array>
#include <cstddef>

namespace sluice::intercept {

/// The last kSize values that were added.
template <class Value, std::size_t kSize>
class LastValues {
 public:
  void add(const Value& value) noexcept { values_[added_++ % kSize] = value; }
  void clear() noexcept { added_ = 0; }
  /// Forgets those for which `keep(value)` is false.
  template <class Keep>
  void keep_if(Keep keep) noexcept {
    LastValues kept;
    for (std::size_t i = added_ - size(); i < added_; ++i) {
      const Value& value = values_[i % kSize];
      if (keep(value)) kept.add(value);
    }
    *this = kept;
  }
  [[nodiscard]] std::size_t size() const noexcept { return added_ < kSize ? added_ : kSize; }
  [[nodiscard]] const Value* begin() const noexcept { return values_.data(); }
  [[nodiscard]] const Value* end() const noexcept { return values_.data() + size(); }

 private:
  std::array<Value, kSize> values_{};
  std::size_t added_ = 0;
};

/// The value at place `place` of the sorted values, counted from 1.
template <class Value, std::size_t kSize>
[[nodiscard]] Value at_place(const LastValues<Value, kSize>& values, std::size_t place) noexcept {
  std::array<Value, kSize> sorted{};
  const auto end = std::copy(values.begin(), values.end(), sorted.begin());
  const auto found = sorted.begin() + static_cast<std::ptrdiff_t>(place - 1);
  std::nth_element(sorted.begin(), found, end);
  return *found;
}

template <class Value, std::size_t kSize>
[[nodiscard]] Value median_of(const LastValues<Value, kSize>& values) noexcept {
  return at_place(values, (values.size() + 1) / 2);
}

/// A bound that the next value exceeds with a probability of at most 1 - per_mille / 1000, if the
/// values are exchangeable and numerous enough; else the greatest.
template <class Value, std::size_t kSize>
[[nodiscard]] Value bound_of(const LastValues<Value, kSize>& values,
                             std::size_t per_mille) noexcept {
  const std::size_t n = values.size();
  return at_place(values, std::min(((n + 1) * per_mille + 999) / 1000, n));
}

}  // namespace sluice::intercept
