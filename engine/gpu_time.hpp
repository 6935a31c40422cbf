#pragma once
#include <chrono>
#include <cstdint>
#include <thread>

#include "base/clock.hpp"

namespace sluice::engine {

/// GPU time in ns since `start`: real time divided by the scale, which is 1 on a real GPU.
class GpuTime {
 public:
  /// start_monotonic_ns: real time of base::monotonic_ns().
  GpuTime(double scale, std::uint64_t start_monotonic_ns)
      : scale_(scale), start_ns_(start_monotonic_ns) {}

  [[nodiscard]] std::uint64_t now_ns() const {
    const std::uint64_t now = base::monotonic_ns();
    return now <= start_ns_ ? 0 : to_gpu_ns(now - start_ns_);
  }
  /// Returns when now_ns() is at least `due_ns`.
  void sleep_until(std::uint64_t due_ns) const {
    const auto real = start_ns_ + to_real_ns(due_ns);
    std::this_thread::sleep_until(
        std::chrono::steady_clock::time_point(std::chrono::nanoseconds(real)));
  }
  /// sleep_until() for short waits: spins for the last part, because a sleep ends late.
  void wait_until(std::uint64_t due_ns) const {
    constexpr std::uint64_t kSpinNs = 60'000;
    const std::uint64_t real = start_ns_ + to_real_ns(due_ns);
    if (base::monotonic_ns() + kSpinNs < real) {
      std::this_thread::sleep_until(
          std::chrono::steady_clock::time_point(std::chrono::nanoseconds(real - kSpinNs)));
    }
    while (base::monotonic_ns() < real) {
    }
  }

  [[nodiscard]] std::uint64_t to_gpu_ns(std::uint64_t real_ns) const {
    return static_cast<std::uint64_t>(static_cast<double>(real_ns) / scale_);
  }
  [[nodiscard]] std::uint64_t to_real_ns(std::uint64_t gpu_ns) const {
    return static_cast<std::uint64_t>(static_cast<double>(gpu_ns) * scale_);
  }

 private:
  double scale_;
  std::uint64_t start_ns_;
};

}  // namespace sluice::engine
