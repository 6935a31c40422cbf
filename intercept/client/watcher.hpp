#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "intercept/client/client.hpp"
#include "intercept/client/job_book.hpp"
#include "intercept/pacing/launch_draw.hpp"
#include "intercept/slot/controller_link.hpp"
#include "intercept/slot/holders.hpp"

namespace sluice::intercept {

/// The thread that makes this process obey: it holds the mutexes that prove that the process lives,
/// opens the gate for holders that are dead, stopped or without progress, and puts in force what
/// `sluice set` asks for. It needs no controller.
///
/// It makes no driver call, allocates nothing and blocks all signals. When a stream's queue is
/// full, the driver blocks allocations, copies and synchronisation of the whole process, and the
/// thread that opens the gate must not wait for them.
class Watcher {
 public:
  Watcher(const std::string& socket_path, JobBooks& jobs) noexcept
      : socket_path_(socket_path), jobs_(jobs) {}

  /// Starts the thread, unless it runs. False if no thread can be created. Call it before the other
  /// functions, and hold no lock.
  bool start() noexcept;

  /// Makes the client live: the watcher thread takes the client's mutex. Takes ownership of
  /// `connection`. Waits for at most a second.
  void take(Client& client, int connection) noexcept;

  /// Looks for a controller twice a second until one listens. If a controller was asked and is
  /// silent (stopped, for example), `unanswered` is the connection, owned from now on. The watcher
  /// then waits for an answer on that connection: a new request would delay another launch in vain.
  void look_for_controller(int unanswered) noexcept;

  /// False after an attach found no controller, until the watcher finds one. Costs one load.
  [[nodiscard]] bool controller_in_sight() const noexcept {
    return in_sight_.load(std::memory_order_relaxed);
  }

  /// For a forked child, in which the thread does not exist: closes the file descriptors.
  void abandon_in_child() noexcept;

 private:
  static constexpr int kMaxWatched = Clients::kMost;

  struct Watched {
    Client* client = nullptr;
    ControllerLink link;
    Holders holders;
    /// Since when every tick has found the slack limited; 0: the last one found it unlimited.
    std::uint64_t slack_since_ns = 0;
    std::uint8_t priority = 0;  ///< The priority at the last tick.
  };

  [[noreturn]] void run() noexcept;
  void sleep() noexcept;
  void welcome(Watched& watched) noexcept;
  void tick(Watched& watched, std::uint64_t now) noexcept;
  void tend_draws() noexcept;
  void report(Watched& watched) noexcept;
  static void take_settings(Watched& watched) noexcept;
  static void tend_slack(Watched& watched, std::uint64_t now) noexcept;
  void look(std::uint64_t now) noexcept;
  void close_unanswered() noexcept;

  const std::string& socket_path_;
  JobBooks& jobs_;
  DrawRule draw_rule_;
  shm::Report report_;  ///< Too large for the stack of a thread.
  std::atomic<bool> in_sight_{true};
  std::atomic<bool> looking_{false};
  std::atomic<int> unanswered_{-1};
  std::atomic<ino_t> unanswered_identity_{0};
  std::uint64_t next_look_ns_ = 0;

  std::atomic<bool> running_{false};
  std::array<Watched, kMaxWatched> watched_{};
  std::atomic<int> offered_{0};             ///< Entries of watched_ that take() has filled.
  std::atomic<std::uint32_t> welcomed_{0};  ///< How many of those the thread has welcomed; a futex.
};

}  // namespace sluice::intercept
