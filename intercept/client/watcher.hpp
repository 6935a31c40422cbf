#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "intercept/client/client.hpp"
#include "intercept/client/controller_link.hpp"
#include "intercept/client/holders.hpp"
#include "intercept/jobs/job_book.hpp"

namespace sluice::intercept {

/// The thread that keeps this process honest: holds the mutexes that prove its life, opens the gate
/// for holders that are dead, stopped or without progress, and puts in force what `sluice set` asks
/// for. It needs no controller.
///
/// It makes no driver call, allocates nothing and blocks all signals: with a full queue the
/// driver blocks, and then so do allocation, copies and synchronisation of the whole process;
/// what opens the gate must not wait for them.
class Watcher {
 public:
  Watcher(const std::string& socket_path, JobBook& jobs) noexcept
      : socket_path_(socket_path), jobs_(jobs) {}

  /// Makes the client live: takes its mutex in the watcher thread, which it starts if need be.
  /// Owns `connection` from then on. False if there is no thread; bounded by a second.
  bool take(Client& client, int connection) noexcept;

  /// There was no controller: look for one, twice a second, until one listens. With one that was
  /// asked and is silent (stopped, say), `unanswered` is the connection: then wait until something
  /// comes on it, because to ask again would hold up another launch for nothing. Owned from then
  /// on.
  void look_for_controller(int unanswered) noexcept;

  /// True unless the last look found no controller. One load for a process without one.
  [[nodiscard]] bool controller_in_sight() const noexcept {
    return in_sight_.load(std::memory_order_relaxed);
  }

  /// Closes the file descriptors in a forked child, where the thread does not exist.
  void abandon_in_child() noexcept;

 private:
  static constexpr int kMaxWatched = 32;

  struct Watched {
    Client* client = nullptr;
    ControllerLink link;
    Holders holders;
    std::uint64_t slack_since_ns =
        0;                      ///< Since when each tick has found less slack; 0: it did not.
    std::uint8_t priority = 0;  ///< As seen by the last tick.
  };

  bool ensure_running() noexcept;
  [[noreturn]] void run() noexcept;
  void sleep() noexcept;
  void welcome(Watched& watched) noexcept;
  void tick(Watched& watched, std::uint64_t now) noexcept;
  static void take_settings(Watched& watched) noexcept;
  static void tend_slack(Watched& watched, std::uint64_t now) noexcept;
  void look(std::uint64_t now) noexcept;

  const std::string& socket_path_;
  JobBook& jobs_;
  std::atomic<bool> in_sight_{true};
  std::atomic<bool> looking_{false};
  std::atomic<int> unanswered_{-1};
  std::uint64_t next_look_ns_ = 0;

  bool running_ = false;
  std::array<Watched, kMaxWatched> watched_{};
  std::atomic<int> offered_{0};             ///< Entries of watched_ given by take().
  std::atomic<std::uint32_t> welcomed_{0};  ///< How many of them are live; a futex.
};

}  // namespace sluice::intercept
