#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>

#include "controller/daemon.hpp"
#include "controller/exposition.hpp"
#include "controller/http_server.hpp"
#include "controller/log.hpp"
#include "controller/metrics_address.hpp"
#include "shm/clock.hpp"
#include "shm/session.hpp"

namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr double kMaxHoldLimitSeconds = 1e9;

constexpr const char* kExamples = R"(
Examples:
  sluice controller                              in the foreground, until Ctrl-C
  sluice controller --session train              a second, independent session
  sluice controller --metrics 127.0.0.1:9464     with metrics for Prometheus
  sluice controller --max-hold 2.5               no job holds others longer than 2.5 s

Exit codes: 0 left in good order, 1 could not run, 2 usage.)";

struct Options {
  sluice::controller::DaemonOptions daemon;
  std::string log_level = "info";
  std::string metrics;  ///< Empty: none.
};

std::string session_fault(const std::string& name) {
  if (sluice::shm::valid_session_name(name)) return {};
  return "'" + name + "' is no session name: 1 to 32 of A-Z a-z 0-9 _ - and inner dots";
}

/// Some versions of CLI11 pass over a variable whose value is not valid.
void refuse_bad_session_variable() {
  const char* name = std::getenv("SLUICE_SESSION");
  if (name == nullptr || *name == '\0') return;
  const std::string fault = session_fault(name);
  if (!fault.empty()) throw CLI::ValidationError("SLUICE_SESSION", fault);
}

std::string metrics_fault(const std::string& address) {
  if (sluice::controller::parse_metrics_address(address)) return {};
  return "'" + address +
         "' is not served: loopback only, as in 127.0.0.1:9464, localhost:9464 or [::1]:9464";
}

/// The exit code, or -1 to go on.
int parse(int argc, char** argv, Options& options) {
  CLI::App app{"The daemon of a session: gives clients their slots, opens what the dead held."};
  app.name("sluice controller");
  app.footer(kExamples);
  double max_hold_seconds = 10;
  options.daemon.session = sluice::shm::kDefaultSession;
  app.add_option("--session", options.daemon.session, "Name of the session")
      ->envname("SLUICE_SESSION")
      ->check(session_fault)
      ->capture_default_str();
  app.add_option("--log-level", options.log_level, "What is logged to stderr")
      ->check(CLI::IsMember({"off", "error", "warn", "info", "debug"}))
      ->capture_default_str();
  app.add_option("--max-hold", max_hold_seconds,
                 "Seconds after which a job no longer holds a client; 0: never")
      ->check(CLI::Range(0.0, kMaxHoldLimitSeconds))
      ->capture_default_str();
  app.add_option("--metrics", options.metrics, "Serve Prometheus metrics at http://ADDR/metrics")
      ->type_name("ADDR:PORT")
      ->check(metrics_fault);
  app.add_flag("--exit-when-idle", options.daemon.exit_when_idle,
               "Leave when the last client has gone");
  try {
    app.parse(argc, argv);
    refuse_bad_session_variable();
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "sluice controller: %s; see sluice controller --help\n", error.what());
    return kExitUsage;
  }
  options.daemon.max_hold_ns = static_cast<std::uint64_t>(max_hold_seconds * 1e9);
  return -1;
}

void serve(const Options& options, const sigset_t& end_signals) {
  using namespace sluice;
  controller::Daemon daemon(options.daemon, end_signals);
  std::optional<controller::HttpServer> http;
  std::string metrics_url;
  if (!options.metrics.empty()) {
    http.emplace(*controller::parse_metrics_address(options.metrics), [&daemon] {
      return controller::exposition(daemon.board(), daemon.tally(), shm::monotonic_ns());
    });
    metrics_url = " metrics=http://" + options.metrics.substr(0, options.metrics.rfind(':') + 1) +
                  std::to_string(http->port()) + "/metrics";
  }
  controller::announce("sluice controller ready: session=" + options.daemon.session +
                       " pid=" + std::to_string(getpid()) + " board=/dev/shm/" +
                       shm::board_name(options.daemon.session) + " socket=" + daemon.socket_path() +
                       metrics_url);
  daemon.run();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  const int status = parse(argc, argv, options);
  if (status >= 0) return status;
  // Before the first thread, so that every thread has them blocked.
  const sigset_t end_signals = sluice::controller::blocked_end_signals();
  signal(SIGPIPE, SIG_IGN);  // a log pipe whose reader has gone
  signal(SIGTTOU, SIG_IGN);  // in the background of a terminal with `stty tostop`
  sluice::controller::start_log(options.log_level);
  try {
    serve(options, end_signals);
  } catch (const std::exception& error) {
    sluice::controller::announce(std::string("sluice controller: ") + error.what());
    sluice::controller::flush_log_and_exit(kExitFailed);
  }
  sluice::controller::flush_log_and_exit(0);
}
