#pragma once
#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "intercept/client/clients.hpp"
#include "intercept/client/config.hpp"
#include "intercept/client/watcher.hpp"
#include "intercept/client/worker.hpp"
#include "intercept/jobs/job_book.hpp"
#include "intercept/pacing/streams.hpp"
#include "shm/mapping.hpp"

namespace sluice::intercept {

/// What this process has in the session: attach, fork and exit. Made by the first driver call that
/// needs it and never destroyed.
class Interposer {
 public:
  static Interposer& instance() noexcept;
  /// Null if no call has needed it yet.
  static Interposer* existing() noexcept { return g_process.interposer.load(); }

  [[nodiscard]] const Config& config() const noexcept { return config_; }
  [[nodiscard]] Clients& clients() noexcept { return clients_; }
  [[nodiscard]] Streams& streams() noexcept { return streams_; }
  [[nodiscard]] JobBook& jobs() noexcept { return jobs_; }

  /// See launch.hpp. Takes memory.
  [[nodiscard]] Stream* stream_of(CUstream stream, bool attach);
  /// The client of the device of the calling thread's context, attached now if `attach`.
  Client* client_here(bool attach) noexcept;
  /// The client that has work in the context; the only one if there is one.
  [[nodiscard]] Client* client_with_work_in(CUcontext context) noexcept;

  /// Launches of a process without a slot, by launch entry.
  [[nodiscard]] shm::Word& unattached_count(Entry entry) noexcept {
    return unattached_[static_cast<std::size_t>(entry)][shm::Count::kBypassUnattached];
  }
  /// Whether an attach may succeed now. If not, launches cost a count and nothing else, until the
  /// process's version changes.
  [[nodiscard]] bool may_attach() const noexcept;
  /// Shows in every slot what driver/unhooked.hpp knows.
  void show_unhooked() noexcept;
  /// Whether a client of this process obeys its gate. Never in a forked child.
  [[nodiscard]] bool attached() noexcept;

 private:
  Interposer();
  Client* attach(CUdevice device) noexcept;
  Client* attach_now(CUdevice device);
  /// Without a seat `connection` is -1, or one on which a silent controller was asked.
  std::optional<Seat> ask_for_seat(CUdevice device, int& connection) noexcept;
  bool map_board(std::uint64_t board_id) noexcept;
  void adopt_counts(Client& client) noexcept;
  void refuse(std::string_view why) noexcept;
  void forget_ended_threads();

  static void install_handlers() noexcept;
  static void leave_at_exit() noexcept;
  static void leave(Client& client) noexcept;
  static void report_forked_child() noexcept;
  static void detach_child() noexcept;
  [[nodiscard]] bool is_unused() noexcept;
  void start_anew_in_child() noexcept;

  pid_t pid_;
  Config config_;
  std::string socket_path_;
  Clients clients_;
  Streams streams_;
  Worker poller_;
  Worker announcer_;
  JobBook jobs_;
  Watcher watcher_;
  std::mutex attach_mutex_;
  std::optional<shm::BoardMapping> mapping_;
  std::atomic<bool> refused_{false};  ///< The session will not have us: do not ask again.
  bool warned_ = false;
  std::array<shm::EntryCounters, shm::kMaxEntries> unattached_{};
};

}  // namespace sluice::intercept
