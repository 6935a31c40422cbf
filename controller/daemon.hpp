#pragma once
#include <csignal>
#include <cstdint>
#include <string>

#include "base/fd.hpp"
#include "base/signal_fd.hpp"
#include "controller/clients.hpp"
#include "controller/command_reader.hpp"
#include "controller/leases.hpp"
#include "controller/listener.hpp"
#include "controller/registry.hpp"
#include "controller/server.hpp"
#include "controller/tally.hpp"
#include "shm/mapping.hpp"

namespace sluice::controller {

struct DaemonOptions {
  std::string session;
  std::uint64_t max_hold_ns = shm::kDefaultMaxHoldNs;  ///< 0: never opens.
  bool exit_when_idle = false;
};

/// The signals that end the controller in good order. They are blocked in every thread and read
/// by the loop; a SIGHUP that is ignored (nohup) stays ignored.
[[nodiscard]] base::SignalFd end_signals();

/// The session's board, owned: adopted or made new, with this process named as its controller.
/// Given back last of all, so that whatever else has the session's name is gone before another
/// controller can come.
class OwnedBoard {
 public:
  /// Throws shm::BoardError where the session has a controller or its board cannot be used.
  OwnedBoard(const std::string& session, std::uint64_t max_hold_ns);
  ~OwnedBoard();
  OwnedBoard(const OwnedBoard&) = delete;
  OwnedBoard& operator=(const OwnedBoard&) = delete;

  [[nodiscard]] shm::Board& board() const noexcept { return adoption_.mapping.board(); }
  [[nodiscard]] bool adopted() const noexcept { return adoption_.adopted; }

 private:
  shm::BoardMapping::Adoption adoption_;
};

/// One loop, one thread: requests, signals, and the heartbeat with its repairs. Nothing in it
/// waits for a peer, a file, a terminal or a lock that another process can hold.
class Daemon {
 public:
  /// Takes the session. Throws shm::BoardError or std::runtime_error, one line, where it cannot.
  Daemon(const DaemonOptions& options, const base::SignalFd& end_signals);

  /// Leaves in good order: opens all gates, then hangs up, removes the socket, and the board if
  /// nobody uses it.
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  /// Serves until a signal comes or, if so asked, until the session is idle.
  void run();

  [[nodiscard]] const shm::Board& board() const noexcept { return owned_.board(); }
  [[nodiscard]] Tally& tally() noexcept { return tally_; }
  [[nodiscard]] const std::string& socket_path() const noexcept { return listener_.path(); }

 private:
  void beat();
  bool idle_for_long(std::uint64_t now_ns);
  bool end_signal_came();

  DaemonOptions options_;
  OwnedBoard owned_;
  Tally tally_;
  Clients clients_;
  Leases leases_;
  CommandReader commands_;
  Registry registry_;
  Listener listener_;
  Server server_;
  base::Fd timer_;
  const base::SignalFd& signals_;
  std::uint64_t started_ns_;
  std::uint64_t idle_since_ns_ = 0;
  bool running_ = true;
};

}  // namespace sluice::controller
