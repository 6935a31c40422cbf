#pragma once
#include <chrono>
#include <thread>

namespace sluice::test {

using namespace std::chrono_literals;

/// How long a test waits for other processes. Generous, so that a loaded two-core machine does not
/// fail a test. Times that matter are asserted or printed.
inline constexpr std::chrono::milliseconds kPatience = 10s;
/// The same for a whole program: until it has started, loaded or ended.
inline constexpr std::chrono::milliseconds kProgramPatience = 30s;

/// Polls until `condition` holds. False if it does not hold within `patience`.
template <class Condition>
[[nodiscard]] bool eventually(Condition condition, std::chrono::milliseconds patience = kPatience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

inline double ms_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

}  // namespace sluice::test
