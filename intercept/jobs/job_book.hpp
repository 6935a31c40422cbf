#pragma once
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "intercept/client/clients.hpp"
#include "intercept/client/worker.hpp"

namespace sluice::intercept {

/// The jobs that the program says it has, on all its devices: those that are open, and those that
/// were announced and have not begun. Their ids count from 1.
///
/// From an announcement on, the board tells the clients below how much time is left, so that their
/// long launches that would not end in time stay away; shortly before the start the gates close,
/// and the GPU is switched to this process.
class JobBook {
 public:
  /// A job that does not begin within this time of its expected start was not meant.
  static constexpr std::uint64_t kLapseNs = 10'000'000;
  /// Earlier than this before its start nobody is told of a job.
  static constexpr std::uint64_t kNearNs = 100'000'000;
  /// More announced at once are refused.
  static constexpr std::size_t kMostAnnounced = 64;

  /// `announcer` calls step() when woken.
  JobBook(Clients& clients, Worker& announcer) noexcept
      : clients_(clients), announcer_(announcer) {}

  /// `announced`: what announce() returned, or 0. Returns the job's id.
  std::uint64_t begin(std::uint64_t announced);
  void end(std::uint64_t job);
  /// A job is expected to begin at `start_ns` (CLOCK_MONOTONIC). 0 if it cannot be taken.
  std::uint64_t announce(std::uint64_t start_ns);
  void cancel(std::uint64_t announced);

  /// Adds a client: a job that is open already is open there too.
  void add(std::unique_ptr<Client> client);
  /// Calls off announced jobs whose time is over. For the watcher too, because the announcing
  /// thread may be inside the driver: allocates nothing.
  void lapse() noexcept;
  /// For the announcing thread: closes gates in time, for announced jobs and predicted ones.
  Worker::Sleep step();

 private:
  struct Announced {
    std::uint64_t job;
    std::uint64_t start_ns;
    bool closed = false;  ///< Gates are closed for it already.
  };
  enum class Taken { kUnknown, kBeforeClose, kClosed };
  struct Next {
    std::uint64_t look_ns;
    bool switch_now;
  };
  // All under the lock.
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
