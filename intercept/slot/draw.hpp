#pragma once
#include <cstdint>

namespace sluice::intercept {

/// Numbers that do not depend on the program (splitmix64): which of a pair is the reference.
class Draw {
 public:
  Draw() noexcept = default;
  explicit Draw(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t next() noexcept {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30U)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27U)) * 0x94d049bb133111eb;
    return z ^ (z >> 31U);
  }

 private:
  std::uint64_t state_ = 0;
};

}  // namespace sluice::intercept
