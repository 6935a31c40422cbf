#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/command_line.hpp"
#include "controller/daemon.hpp"
#include "controller/exposition.hpp"
#include "controller/http_server.hpp"
#include "controller/log.hpp"
#include "controller/metrics_address.hpp"
#include "shm/outside.hpp"
#include "shm/session.hpp"

namespace {

constexpr double kMaxHoldLimitSeconds = 1e9;

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
  std::string log_level = "info";
  std::vector<std::string> metrics;
};

std::string metrics_fault(const std::string& address) {
  if (sluice::controller::parse_metrics_address(address)) return {};
  return "'" + address +
         "' is not a loopback address with a port: use 127.0.0.1:9464, localhost:9464, "
         "[::1]:9464 or unix:/PATH";
}

/// Returns nothing, or the exit code with which to exit now.
std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app(
      "The daemon of a session: gives clients their slots and opens the gates that dead clients "
      "held.",
      "sluice controller");
  app.footer(kExamples);
  double max_hold_seconds = 10;
  options.daemon.session = sluice::base::kDefaultSession;
  sluice::base::add_session_option(app, options.daemon.session);
  app.add_option("--log-level", options.log_level, "What to log to stderr")
      ->check(CLI::IsMember({"off", "error", "warn", "info", "debug"}))
      ->capture_default_str();
  app.add_option("--max-hold", max_hold_seconds,
                 "Seconds after which a job no longer holds other clients; 0: no limit")
      ->check(CLI::Range(0.0, kMaxHoldLimitSeconds))
      ->capture_default_str();
  app.add_option("--metrics", options.metrics,
                 "Serve Prometheus metrics at http://ADDR/metrics, or on a unix socket that only "
                 "this user can open; may be given several times")
      ->type_name("ADDR:PORT|unix:PATH")
      ->allow_extra_args(false)
      ->check(metrics_fault);
  app.add_flag("--exit-when-idle", options.daemon.exit_when_idle, "Exit after the last client");
  if (const auto exit_code = sluice::base::parse(app, argc, argv)) return exit_code;
  options.daemon.max_hold_ns = static_cast<std::uint64_t>(max_hold_seconds * 1e9);
  return std::nullopt;
}

void serve(const Options& options, const sluice::base::SignalFd& end_signals) {
  using namespace sluice;
  controller::Daemon daemon(options.daemon, end_signals);
  std::list<controller::HttpServer> servers;
  std::string metrics_urls;
  for (const std::string& where : options.metrics) {
    const controller::MetricsAddress address = *controller::parse_metrics_address(where);
    const auto readers =
        address.is_unix() ? controller::Readers::kOwnUser : controller::Readers::kEveryLocalUser;
    servers.emplace_back(address, [&daemon, &options, readers] {
      const std::uint64_t now_ns = base::monotonic_ns();
      const shm::Snapshot snapshot = shm::take_snapshot(daemon.board(), now_ns);
      return controller::exposition(daemon.board(), daemon.tally(), now_ns,
                                    shm::find_outside(snapshot, options.daemon.session), readers);
    });
    metrics_urls += " metrics=" + servers.back().url();
  }
  controller::announce("sluice controller ready: session=" + options.daemon.session +
                       " pid=" + std::to_string(getpid()) + " board=/dev/shm/" +
                       shm::board_name(options.daemon.session) + " socket=" + daemon.socket_path() +
                       metrics_urls);
  daemon.run();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (const auto exit_code = parse(argc, argv, options)) return *exit_code;
  // Before the first thread, so that every thread inherits the blocked signals.
  const sluice::base::SignalFd end_signals = sluice::controller::end_signals();
  signal(SIGPIPE, SIG_IGN);  // the reader of a log pipe may be gone
  signal(SIGTTOU, SIG_IGN);  // as a background job of a terminal with `stty tostop`
  sluice::controller::start_log(options.log_level);
  try {
    serve(options, end_signals);
  } catch (const std::exception& error) {
    sluice::controller::announce(std::string("sluice controller: ") + error.what());
    sluice::controller::flush_log_and_exit(sluice::base::kExitFailed);
  }
  sluice::controller::flush_log_and_exit(0);
}
