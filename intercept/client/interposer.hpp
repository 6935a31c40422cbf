#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "intercept/client/client.hpp"
#include "intercept/client/config.hpp"
#include "intercept/client/watcher.hpp"
#include "intercept/jobs/announcements.hpp"
#include "shm/mapping.hpp"

namespace sluice::intercept {

/// The client of a process that uses one device; null before attach, with several devices, and in
/// forked children. What nearly every launch reads.
extern constinit std::atomic<Client*> g_only_client;

/// In a forked child nothing of ours may run: the locks may have been held at the fork by threads
/// that do not exist any more, and the slot is the parent's.
extern constinit std::atomic<bool> g_forked_child;

/// Set at exit: nothing of ours calls the driver any more, which is being taken down.
extern constinit std::atomic<bool> g_leaving;
inline bool in_forked_child() noexcept { return g_forked_child.load(std::memory_order_relaxed); }

/// The one object of the interposer: what this process knows of itself. Made by the first driver
/// call that needs it and never destroyed.
class Interposer {
 public:
  static Interposer& instance() noexcept;

  [[nodiscard]] const Config& config() const noexcept { return config_; }

  /// The client of the stream's device, attached now if it was not. Null: this launch is nobody's
  /// business (no controller, session full, forked child).
  Client* client_of(CUstream stream) noexcept;

  /// A context of the device exists: with a second device, launches have to be told apart.
  void note_device(CUdevice device) noexcept;

  /// Launches of a process without a slot, by launch entry.
  void count_unattached(Entry entry) noexcept;

  /// The program asked for a work entry that is not hooked.
  void note_unhooked(std::string_view name) noexcept;

  /// Whether a client of this process obeys its gate. Never in a forked child.
  [[nodiscard]] bool attached() noexcept;

  /// `announced`: what announce_job() returned, or 0.
  std::uint64_t begin_job(std::uint64_t announced) noexcept;
  void end_job(std::uint64_t job) noexcept;
  /// A job is expected to begin at `start_ns` (CLOCK_MONOTONIC): see notices.hpp.
  std::uint64_t announce_job(std::uint64_t start_ns) noexcept;
  void cancel_job(std::uint64_t announced) noexcept;
  /// Calls off announced jobs whose time is over.
  void lapse_announcements() noexcept;
  /// A job of the client in this slot is expected; `first`: none was before. Starts the notice
  /// thread where acting on it can pay, and wakes it. Takes no lock: the caller holds that of the
  /// client's jobs, which the prediction is of.
  void expect_job(int slot, const Prediction& prediction, bool first) noexcept;

  template <class Visit>
  void for_each_client(Visit visit) noexcept {
    if (in_forked_child()) return;
    const int count = client_count_.load(std::memory_order_acquire);
    for (int i = 0; i < count; ++i) visit(*clients_[static_cast<std::size_t>(i)]);
  }

 private:
  static constexpr int kMaxClients = 32;

  Interposer() noexcept;
  Client* find(CUdevice device) noexcept;
  Client* attach(CUdevice device) noexcept;
  /// Without a seat `connection` is -1, or one on which a silent controller was asked.
  std::optional<Seat> ask_for_seat(CUdevice device, int& connection) noexcept;
  bool map_board(std::uint64_t board_id) noexcept;
  void adopt_counts(Client& client) noexcept;
  void refuse(std::string_view why) noexcept;
  void publish(std::unique_ptr<Client> client) noexcept;
  // Under the lock of the jobs.
  void call_off_late() noexcept;
  void close_job(std::uint64_t job) noexcept;
  void say_if_none_has_begun() noexcept;
  void end_slack() noexcept;
  struct Next {
    std::uint64_t look_ns;
    bool kick;
  };
  Next step_announcements() noexcept;
  bool start_announcements() noexcept;
  [[noreturn]] void keep_announcements() noexcept;
  /// For the notice thread. Returns when to look again.
  std::uint64_t step_predictions() noexcept;

  static void leave_at_exit() noexcept;
  static void leave(Client& client) noexcept;
  static void report_forked_child() noexcept;
  static void detach_child() noexcept;
  [[nodiscard]] bool is_unused() noexcept;
  void start_anew_in_child() noexcept;

  pid_t pid_;
  Config config_;
  std::string socket_path_;
  Watcher watcher_;
  std::mutex attach_mutex_;
  std::optional<shm::BoardMapping> mapping_;
  std::atomic<bool> refused_{false};  ///< The session will not have us: do not ask again.
  bool warned_ = false;
  std::array<std::unique_ptr<Client>, kMaxClients> clients_;
  std::atomic<int> client_count_{0};
  std::atomic<std::uint64_t> devices_seen_{0};
  std::array<std::atomic<std::uint64_t>, shm::kMaxEntries> unattached_{};

  std::mutex jobs_mutex_;
  std::unordered_set<std::uint64_t> open_jobs_;
  std::uint64_t last_job_ = 0;
  Announcements announcements_;
  std::atomic<bool> announce_thread_{false};

  std::mutex unhooked_mutex_;
  std::uint32_t unhooked_asked_ = 0;
  std::array<char, 32> unhooked_name_{};
};

}  // namespace sluice::intercept
