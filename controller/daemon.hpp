#pragma once
#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/fd.hpp"
#include "base/signal_fd.hpp"
#include "controller/admission.hpp"
#include "controller/clients.hpp"
#include "controller/command_reader.hpp"
#include "controller/leases.hpp"
#include "controller/listener.hpp"
#include "controller/owned_board.hpp"
#include "controller/registry.hpp"
#include "controller/server.hpp"
#include "controller/tally.hpp"

namespace sluice::controller {

struct DaemonOptions {
  std::string session;
  bool exit_when_idle = false;
  std::function<void()> on_hang_up = {};  ///< What SIGHUP does. Empty: it ends the controller.
};

/// The signals that end the controller in an orderly way. They are blocked in every thread, and the
/// loop reads them. An ignored SIGHUP (nohup) stays ignored.
[[nodiscard]] base::SignalFd end_signals();

/// The loop, in one thread: requests, signals, and the heartbeat with its repairs. The loop never
/// waits for a peer, a file, a terminal or a lock that another process can hold.
class Daemon {
 public:
  /// Serves `board`, which it owns from now on. `admission` and `signals` outlive this object.
  /// Throws std::runtime_error with one line if there can be no socket.
  Daemon(DaemonOptions options, std::unique_ptr<OwnedBoard> board, Admission& admission,
         const base::SignalFd& signals);

  /// Closes the connections and removes the socket, and the board if no process uses it. Leaves the
  /// gates to the clients, which go on among themselves. The socket of a node with living clients
  /// stays: new programs must not choose another session while the service restarts.
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  /// Serves until a signal arrives or, with exit_when_idle, until the session is idle.
  void run();

  [[nodiscard]] shm::Board& board() const noexcept { return owned_->board(); }
  [[nodiscard]] Tally& tally() noexcept { return tally_; }
  [[nodiscard]] const std::string& socket_path() const noexcept { return listener_.path(); }

 private:
  void beat();
  bool idle_for_long(std::uint64_t now_ns);
  void take_signal();

  DaemonOptions options_;
  std::unique_ptr<OwnedBoard> owned_;
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
