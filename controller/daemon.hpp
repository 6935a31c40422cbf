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

/// The signals that end the controller in an orderly way. They are blocked in every thread, and the
/// loop reads them. An ignored SIGHUP (nohup) stays ignored.
[[nodiscard]] base::SignalFd end_signals();

/// Ownership of the session's board, which is adopted or created. The board names this process as
/// its controller. Ownership ends last, so that the socket is gone before another controller can
/// start.
class OwnedBoard {
 public:
  /// Throws shm::BoardError if the session has a controller or its board cannot be used.
  OwnedBoard(const std::string& session, std::uint64_t max_hold_ns);
  ~OwnedBoard();
  OwnedBoard(const OwnedBoard&) = delete;
  OwnedBoard& operator=(const OwnedBoard&) = delete;

  [[nodiscard]] shm::Board& board() const noexcept { return adoption_.mapping.board(); }
  [[nodiscard]] bool adopted() const noexcept { return adoption_.adopted; }

 private:
  shm::BoardMapping::Adoption adoption_;
};

/// The loop, in one thread: requests, signals, and the heartbeat with its repairs. The loop never
/// waits for a peer, a file, a terminal or a lock that another process can hold.
class Daemon {
 public:
  /// Takes the session. Throws shm::BoardError or std::runtime_error with one line if that fails.
  Daemon(const DaemonOptions& options, const base::SignalFd& end_signals);

  /// Closes the connections and removes the socket, and the board if no process uses it. Leaves the
  /// gates to the clients, which go on among themselves.
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  /// Serves until a signal arrives or, with exit_when_idle, until the session is idle.
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
