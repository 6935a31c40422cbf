// `sluice controller`: the controller of a session of this user.
#include <unistd.h>

#include <exception>
#include <memory>
#include <optional>
#include <string>

#include "base/command_line.hpp"
#include "base/install.hpp"
#include "base/mps_join.hpp"
#include "base/node_service.hpp"
#include "controller/daemon.hpp"
#include "controller/program.hpp"
#include "shm/session.hpp"

namespace {

constexpr const char* kName = "sluice controller";

constexpr const char* kExamples = R"(
Examples:
  sluice controller                              in the foreground, until Ctrl-C
  sluice controller --session train              a second, independent session
  sluice controller --metrics 127.0.0.1:9464     with metrics for Prometheus
  sluice controller --metrics unix:/run/user/1000/sluice.metrics     for this user only
  sluice controller --max-hold 2.5               no job holds other clients longer than 2.5 s

Exit codes: 0 orderly exit, 1 could not run, 2 usage.)";

struct Options {
  sluice::controller::DaemonOptions daemon;
  sluice::controller::ProgramOptions program;
};

/// Returns nothing, or the exit code with which to exit now.
std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app(
      "The daemon of a session: gives clients their slots and opens the gates that dead clients "
      "held.",
      kName);
  app.footer(kExamples);
  options.daemon.session = sluice::base::kDefaultSession;
  sluice::base::add_session_option(app, options.daemon.session);
  sluice::controller::add_program_options(app, options.program);
  app.add_flag("--exit-when-idle", options.daemon.exit_when_idle, "Exit after the last client");
  if (const auto exit_code = sluice::base::parse(app, argc, argv)) return exit_code;
  if (options.daemon.session != sluice::base::kNodeSession) return std::nullopt;
  sluice::base::print_error(
      kName, "session node is that of all users of this machine: sluice node serves it");
  return sluice::base::kExitUsage;
}

/// The keeper may have been killed since the last look, and nobody else would end the daemon.
void leave_mps(const std::string& session) noexcept {
  try {
    sluice::base::leave_mps_to_keeper(sluice::base::Install::of_this_program(), session);
  } catch (const std::exception&) {  // the next command of the session finds it
  }
}

void serve(const Options& options, const sluice::base::SignalFd& end_signals) {
  using namespace sluice;
  const std::string& session = options.daemon.session;
  auto board = std::make_unique<controller::SessionBoard>(session, options.program.max_hold_ns());
  controller::OwnUser admission(board->descriptor());
  controller::Daemon daemon(options.daemon, std::move(board), admission, end_signals);
  controller::serve(daemon, options.program, session,
                    "sluice controller ready: session=" + session +
                        " pid=" + std::to_string(getpid()) + " board=/dev/shm/" +
                        shm::board_name(session) + " socket=" + daemon.socket_path(),
                    {});
  leave_mps(session);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto exit_code = parse(argc, argv, options)) return *exit_code;
  // Before the first thread, so that every thread inherits the blocked signals.
  const sluice::base::SignalFd end_signals = sluice::controller::end_signals();
  sluice::controller::run_program(kName, options.program, [&] { serve(options, end_signals); });
}
