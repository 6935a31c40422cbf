// `sluice mps`: a private MPS daemon for the measuring tools, which start their programs
// themselves; and the keeper of the MPS daemon of a session, which `sluice exec --mps` starts.
#include <poll.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <string>

#include "base/command_line.hpp"
#include "base/mps_daemon.hpp"
#include "base/mps_keeper.hpp"
#include "base/node_service.hpp"
#include "base/signal_fd.hpp"
#include "shm/mapping.hpp"

namespace sluice::tools {
namespace {

/// Waits until standard input ends or a signal arrives. Ignores the input.
void wait_for_end(const base::SignalFd& signals) {
  std::array<pollfd, 2> sources{pollfd{signals.fd(), POLLIN, 0}, pollfd{STDIN_FILENO, POLLIN, 0}};
  std::array<char, 256> ignored{};
  for (;;) {
    if (poll(sources.data(), sources.size(), -1) < 0) continue;
    if (sources[0].revents != 0) return;
    if (sources[1].revents != 0 && read(STDIN_FILENO, ignored.data(), ignored.size()) <= 0) return;
  }
}

void run_private(const std::string& log) {
  const base::SignalFd signals{SIGINT, SIGTERM, SIGHUP};
  const base::MpsDaemon daemon(base::find_mps_control(), log);
  for (const std::string& variable : daemon.environment(false)) std::puts(variable.c_str());
  std::puts("");
  std::fflush(stdout);
  wait_for_end(signals);
}

/// The node service never ends, and is of all users: there only programs count.
bool controller_lives(const std::string& session) {
  return session != base::kNodeSession && shm::has_controller(session);
}

int mps(int argc, char** argv) {
  CLI::App app(
      "Run a private MPS daemon until standard input ends, for `sluice bench`; or keep the MPS "
      "daemon of a session, for `sluice exec --mps`.",
      "sluice mps");
  std::string log;
  std::string session;
  CLI::Option* const private_log =
      app.add_option("--log", log, "Run a private daemon, with its logs in this folder")
          ->type_name("DIR");
  app.add_option("--session", session,
                 "Keep the daemon of this session: end it when neither its controller nor a "
                 "program is left")
      ->type_name("NAME")
      ->check(base::check_session_name)
      ->excludes(private_log);
  app.footer(
      "With --log, prints the variables that a client needs, and then an empty line.\n\nExample:\n"
      "  sleep 60 | sluice mps --log /tmp/mps");
  if (const auto exit_code = base::parse(app, argc, argv)) return *exit_code;
  if (log.empty() && session.empty()) throw base::UsageError("--log or --session is required");
  if (session.empty()) {
    run_private(log);
  } else {
    base::keep_mps(session, [&] { return controller_lives(session); });
  }
  return base::kExitFine;
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice mps", [&] { return sluice::tools::mps(argc, argv); });
}
