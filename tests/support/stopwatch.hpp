#pragma once
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/support/eventually.hpp"

namespace sluice::test {

/// Measures how long something takes, without the time for which the host was late: a loaded
/// machine lets a thread that is due wait for tens of milliseconds. On an idle machine this is the
/// time on the clock.
class Stopwatch {
 public:
  Stopwatch() = default;

  [[nodiscard]] double ms() const { return ms_since(start_) - late_ms_.load(); }

 private:
  /// Wakes every millisecond, and counts how much later it does so.
  void count_late(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const auto slept = std::chrono::steady_clock::now();
      std::this_thread::sleep_for(1ms);
      constexpr double kOnTimeMs = 2;
      const double took = ms_since(slept);
      if (took > kOnTimeMs) late_ms_.store(late_ms_.load() + took - 1);
    }
  }

  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::atomic<double> late_ms_{0};
  std::jthread late_{[this](const std::stop_token& stop) { count_late(stop); }};
};

}  // namespace sluice::test
