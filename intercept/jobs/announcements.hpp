#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "base/futex.hpp"

namespace sluice::intercept {

class Client;

/// While a job is near, the time that is left is written so often. Real ns.
inline constexpr std::uint64_t kAnnounceStepNs = 50'000;
/// Without one, the notice thread looks so often.
inline constexpr std::uint64_t kAnnounceIdleNs = 1'000'000'000;

/// GPU time from the moment that the GPU is this client's to take until it works for it.
[[nodiscard]] std::uint64_t handover_ns(const Client& client) noexcept;
/// How long before the start of a job the gates must close, real ns.
[[nodiscard]] std::uint64_t lead_of(const Client& client) noexcept;
/// Tells the clients below how much time is left until the GPU must be free for a job that begins
/// at `start_ns`. Void from `until_ns` on. Real ns.
void tell_slack(const Client& client, std::uint64_t start_ns, std::uint64_t until_ns) noexcept;
/// Tells them that no job is near.
void tell_no_job(const Client& client) noexcept;
/// Whether a client below is worth a prediction: one under policy device. The published policies
/// stay as they were published.
[[nodiscard]] bool has_device_work_below(const Client& client) noexcept;

/// Jobs of this process that were announced and have not begun. Guarded by the lock of the jobs.
///
/// From the announcement on, the board tells the clients below how much time is left, so that their
/// long launches that would not end in time stay away; shortly before the start the gates close,
/// and the GPU is switched to this process.
class Announcements {
 public:
  struct Announcement {
    std::uint64_t job;
    std::uint64_t start_ns;  ///< When it is expected to begin. CLOCK_MONOTONIC.
    bool closed = false;     ///< Gates are closed for it already.
  };
  enum class Taken { kUnknown, kBeforeClose, kClosed };

  /// A job that does not begin within this time of its expected start was not meant.
  static constexpr std::uint64_t kLapseNs = 10'000'000;
  /// Earlier than this before its start nobody is told of a job.
  static constexpr std::uint64_t kNearNs = 100'000'000;
  /// More at once are refused.
  static constexpr std::size_t kMost = 64;

  void add(std::uint64_t job, std::uint64_t start_ns) {
    waiting_.push_back({job, start_ns});
    wake();
  }
  void wake() noexcept {
    changes_.fetch_add(1);
    base::futex_wake_all(changes_);
  }
  /// The job begins now, or is called off.
  [[nodiscard]] Taken take(std::uint64_t job) noexcept;
  [[nodiscard]] std::vector<Announcement>& waiting() noexcept { return waiting_; }
  [[nodiscard]] std::atomic<std::uint32_t>& changes() noexcept { return changes_; }

 private:
  std::vector<Announcement> waiting_;
  std::atomic<std::uint32_t> changes_{0};
};

}  // namespace sluice::intercept
