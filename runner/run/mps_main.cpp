// `sluice mps`: a private MPS daemon for the measuring tools, which start their programs
// themselves.
#include <poll.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <string>

#include "base/command_line.hpp"
#include "base/signal_fd.hpp"
#include "runner/run/mps.hpp"

namespace sluice::runner {
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

int mps(int argc, char** argv) {
  CLI::App app("Run a private MPS daemon until standard input ends. For `sluice bench`.",
               "sluice mps");
  std::string log;
  app.add_option("--log", log, "Folder for the daemon's logs")->type_name("DIR")->required();
  app.footer(
      "Prints the variables that a client needs, and then an empty line.\n\nExample:\n"
      "  sleep 60 | sluice mps --log /tmp/mps");
  if (const auto exit_code = base::parse(app, argc, argv)) return *exit_code;
  const base::SignalFd signals{SIGINT, SIGTERM, SIGHUP};
  const MpsDaemon daemon(find_mps_control(), log);
  for (const std::string& variable : daemon.environment(false)) std::puts(variable.c_str());
  std::puts("");
  std::fflush(stdout);
  wait_for_end(signals);
  return base::kExitFine;
}

}  // namespace
}  // namespace sluice::runner

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice mps", [&] { return sluice::runner::mps(argc, argv); });
}
