#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "intercept/jobs/waits.hpp"

namespace sluice::intercept {

/// How long this process has waited for the GPU, in a file of its own for measurements
/// (SLUICE_WAITS): two words of 64 bits, the time in ns and the number of waits. Neither ever
/// falls. Counts at every priority and under every policy, and gates nothing.
class WaitFile {
 public:
  /// A call that may not wait counts if it took longer than this.
  static constexpr std::uint64_t kLongNs = 50'000;

  /// Makes the file `folder`/PID and counts from then on, or reports in one line why it cannot.
  /// Throws std::bad_alloc.
  static void start(const std::string& folder);

  explicit WaitFile(std::atomic<std::uint64_t>* words) noexcept : words_(words) {}

  /// Bracket a call of the program that waits. There is no destructor, because another thread may
  /// cancel the call. `surely`: the call does nothing else than wait.
  Waits::Wait begins(std::uint64_t now_ns) noexcept { return waits_.begins(now_ns, 0); }
  void returned(const Waits::Wait& wait, std::uint64_t now_ns, bool surely) noexcept {
    if (!surely && now_ns - wait.since_ns < kLongNs) return;
    const std::lock_guard lock(mutex_);
    waits_.returned(wait, now_ns, 0);
    words_[0].store(waits_.waited_ns(), std::memory_order_relaxed);
    words_[1].fetch_add(1, std::memory_order_relaxed);
  }

 private:
  std::mutex mutex_;  ///< Serialises the ends of waits.
  Waits waits_;       ///< As of a job that began with the process and has no end.
  std::atomic<std::uint64_t>* words_;
};

}  // namespace sluice::intercept
