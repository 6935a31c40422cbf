#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>

namespace sluice::intercept {

/// How long the open job has waited in calls that wait for the GPU. Of waits of several threads at
/// once, their union counts, as far as it can be told without knowing who is inside: a thread that
/// is cancelled never returns. Reads no clock. begins() may run at any time; the rest is serialised
/// by the caller.
class Waits {
 public:
  struct Wait {
    std::uint64_t since_ns = 0;    ///< 0: nobody wants to know.
    std::uint64_t counted_ns = 0;  ///< Waits of the open job until then.
    std::uint64_t given = 0;       ///< The period of the work that is waited for; 0: no step.
  };

  [[nodiscard]] Wait begins(std::uint64_t now_ns, std::uint64_t given) const noexcept {
    return {now_ns, waited_ns_.load(std::memory_order_relaxed), given};
  }
  /// A wait that began before the job counts from its begin. What had been counted when the wait
  /// began came before it.
  void returned(const Wait& wait, std::uint64_t now_ns, std::uint64_t job_began_ns) noexcept {
    const bool within = wait.since_ns >= job_began_ns;
    const auto from = [now_ns](std::uint64_t begin) { return now_ns - std::min(now_ns, begin); };
    const std::uint64_t waited = waited_ns_.load(std::memory_order_relaxed);
    waited_ns_.store(
        std::max((within ? wait.counted_ns : 0) + from(std::max(wait.since_ns, job_began_ns)),
                 waited + from(std::max({wait.since_ns, job_began_ns, until_ns_}))));
    until_ns_ = std::max(until_ns_, now_ns);
  }

  /// Of the open job.
  [[nodiscard]] std::uint64_t waited_ns() const noexcept { return waited_ns_.load(); }

  void job_begins() noexcept { waited_ns_.store(0); }
  /// The job took `took_ns`. Returns its part in waits.
  std::uint64_t job_ended(std::uint64_t took_ns) noexcept {
    const std::uint64_t waited = std::min(took_ns, waited_ns_.load());
    ended_.waited_ns += waited;
    ended_.host_ns += took_ns - waited;
    return waited;
  }
  /// The time of all jobs: in waits, and the rest. Neither ever falls.
  struct Sums {
    std::uint64_t waited_ns = 0;
    std::uint64_t host_ns = 0;
  };
  /// Of the open job (`job_began_ns`; 0: none is open) the time until the last wait returned
  /// counts.
  [[nodiscard]] Sums sums(std::uint64_t job_began_ns) const noexcept {
    if (job_began_ns == 0 || until_ns_ <= job_began_ns) return ended_;
    const std::uint64_t waited = std::min(waited_ns_.load(), until_ns_ - job_began_ns);
    return {ended_.waited_ns + waited, ended_.host_ns + (until_ns_ - job_began_ns) - waited};
  }

 private:
  std::atomic<std::uint64_t> waited_ns_{0};  ///< Of the open job.
  std::uint64_t until_ns_ = 0;               ///< When the last wait returned.
  Sums ended_;
};

}  // namespace sluice::intercept
