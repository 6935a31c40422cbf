#pragma once
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "intercept/client/client.hpp"
#include "intercept/driver/threads.hpp"

namespace sluice::intercept {

/// The jobs that the program marks, on all its devices: the open ones, and those that were
/// announced and have not begun. Their ids count from 1.
///
/// From 0.1 s before an announced job, the clients below see on the board how much time is left, so
/// that their long launches that would not end in time wait. Shortly before the start the gates
/// close, and the GPU is switched to this process.
class JobBook {
 public:
  /// A job lapses if it has not begun this long after its expected start.
  static constexpr std::uint64_t kLapseNs = 10'000'000;
  /// The slack is written from this long before the start of a job.
  static constexpr std::uint64_t kNearNs = 100'000'000;
  /// Further announcements are refused.
  static constexpr std::size_t kMostAnnounced = 64;

  /// `announcer` must call step() when woken.
  JobBook(Clients& clients, Worker& announcer) noexcept
      : clients_(clients), announcer_(announcer) {}

  /// `announced`: the result of announce(), or 0. Returns the job's id.
  std::uint64_t begin(std::uint64_t announced);
  void end(std::uint64_t job);
  /// A job is expected to begin at `start_ns` (CLOCK_MONOTONIC). Returns its id, or 0 if it cannot
  /// be accepted.
  std::uint64_t announce(std::uint64_t start_ns);
  void cancel(std::uint64_t announced);

  /// Adds a client. A job that is already open is open for this client too.
  void add(std::unique_ptr<Client> client);
  /// Calls off announced jobs that have lapsed. The watcher calls this too, because the announcing
  /// thread may be blocked in the driver. Allocates nothing.
  void lapse() noexcept;
  /// For the announcing thread: closes the gates in time, for announced and for predicted jobs.
  Worker::Sleep step();

 private:
  struct Announced {
    std::uint64_t job;
    std::uint64_t start_ns;
    bool closed = false;  ///< The gates are closed for this job already.
  };
  enum class Taken { kUnknown, kBeforeClose, kClosed };
  struct Next {
    std::uint64_t look_ns;
    bool switch_now;
  };
  // The caller holds the lock for all of these.
  [[nodiscard]] Taken take(std::uint64_t job) noexcept;
  void close(std::uint64_t job) noexcept;
  void close_gates_for(Announced& announced);
  void call_off_late() noexcept;
  void say_if_none_has_begun() noexcept;
  void end_slack() noexcept;
  [[nodiscard]] Next step_announced();

  Clients& clients_;
  Worker& announcer_;
  std::mutex mutex_;
  std::unordered_set<std::uint64_t> open_;
  std::vector<Announced> announced_;
  std::uint64_t last_job_ = 0;
};

}  // namespace sluice::intercept
