#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_set>
#include <vector>

#include "intercept/client/client.hpp"
#include "intercept/driver/threads.hpp"

namespace sluice::intercept {

/// The jobs that the program marks, on all its devices or on one: the open ones, and those that
/// were announced and have not begun.
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

  /// In place of a device: all of them.
  static constexpr CUdevice kAll = -1;

  /// `announcer` must call step_announced() when woken. `device`: of the jobs. Ids count from
  /// `first` on.
  JobBook(Clients& clients, Worker& announcer, CUdevice device, std::uint64_t first) noexcept
      : clients_{clients, device}, announcer_(announcer), last_job_(first - 1) {}

  /// `announced`: the result of announce(), or 0. Returns the job's id.
  std::uint64_t begin(std::uint64_t announced);
  void end(std::uint64_t job);
  /// A job is expected to begin at `start_ns` (CLOCK_MONOTONIC). Returns its id, or 0 if it cannot
  /// be accepted.
  std::uint64_t announce(std::uint64_t start_ns);
  void cancel(std::uint64_t announced);

  /// For a new client of the device, while the book is locked: a job that is already open is open
  /// for this client too.
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  void adopt(Client& client) noexcept;
  /// Calls off announced jobs that have lapsed. The watcher calls this too, because the announcing
  /// thread may be blocked in the driver. Allocates nothing.
  void lapse() noexcept;
  struct Next {
    std::uint64_t look_ns;
    bool switch_now;
  };
  /// For the announcing thread: closes the gates in time for announced jobs. Returns when to look
  /// again, and whether to switch the GPU to this process now.
  [[nodiscard]] Next step_announced();
  /// Switches the GPU of each client of the device to this process.
  void switch_early() noexcept {
    clients_.for_each([](Client& client) { client.switch_early(); });
  }

 private:
  /// The clients whose gates the jobs of this book close.
  struct Its {
    Clients& all;
    CUdevice device;
    template <class Visit>
    void for_each(Visit visit) {
      all.for_each([&](Client& client) {
        if (device == kAll || client.device() == device) visit(client);
      });
    }
  };
  struct Announced {
    std::uint64_t job;
    std::uint64_t start_ns;
    bool closed = false;  ///< The gates are closed for this job already.
  };
  enum class Taken { kUnknown, kBeforeClose, kClosed };
  // The caller holds the lock for all of these.
  [[nodiscard]] Taken take(std::uint64_t job) noexcept;
  void close(std::uint64_t job) noexcept;
  void close_gates_for(Announced& announced);
  void call_off_late() noexcept;
  void say_if_none_has_begun() noexcept;
  void end_slack() noexcept;

  Its clients_;
  Worker& announcer_;
  std::mutex mutex_;
  std::unordered_set<std::uint64_t> open_;
  std::vector<Announced> announced_;
  std::uint64_t last_job_;
};

/// The books of a process: one of the jobs on all its devices, and one for each device that has
/// jobs of its own. The id of a job says in which it is. Books stay.
class JobBooks {
 public:
  /// `announcer` must call step() when woken.
  JobBooks(Clients& clients, Worker& announcer) noexcept
      : clients_(clients), announcer_(announcer), all_(clients, announcer, JobBook::kAll, 1) {}

  [[nodiscard]] JobBook& all() noexcept { return all_; }
  /// Null for a device that no process can have. Allocates.
  [[nodiscard]] JobBook* of(CUdevice device);
  void end(std::uint64_t job);
  void cancel(std::uint64_t announced);

  /// Adds a client.
  void add(std::unique_ptr<Client> client);
  /// As JobBook::lapse().
  void lapse() noexcept;
  /// For the announcing thread: closes the gates in time, for announced and for predicted jobs.
  Worker::Sleep step();

 private:
  /// Ids of a device's book have its index + 1 above this bit.
  static constexpr unsigned kDeviceShift = 56;
  [[nodiscard]] JobBook* known(std::uint64_t device) noexcept;
  [[nodiscard]] JobBook* book_of(std::uint64_t job) noexcept;
  template <class Visit>
  void for_each(Visit visit) {
    visit(all_);
    for (auto& each : of_devices_) {
      if (JobBook* const book = each.load()) visit(*book);
    }
  }

  Clients& clients_;
  Worker& announcer_;
  JobBook all_;
  std::mutex making_;  ///< Before the locks of books: no book is made while a client is added.
  std::array<std::atomic<JobBook*>, Clients::kMost> of_devices_{};
};

}  // namespace sluice::intercept
