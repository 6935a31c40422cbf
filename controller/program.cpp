#include "controller/program.hpp"

#include <signal.h>

#include <exception>
#include <list>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "controller/http_server.hpp"
#include "controller/log.hpp"
#include "controller/metrics_address.hpp"
#include "shm/outside.hpp"

namespace sluice::controller {
namespace {

constexpr double kMaxHoldLimitSeconds = 1e9;

std::string metrics_fault(const std::string& address) {
  if (parse_metrics_address(address)) return {};
  return "'" + address +
         "' is not a loopback address with a port: use 127.0.0.1:9464, localhost:9464, "
         "[::1]:9464 or unix:/PATH";
}

}  // namespace

void add_program_options(CLI::App& app, ProgramOptions& options) {
  app.add_option("--log-level", options.log_level, "What to log to stderr")
      ->check(CLI::IsMember({"off", "error", "warn", "info", "debug"}))
      ->capture_default_str();
  app.add_option("--max-hold", options.max_hold_seconds,
                 "Seconds after which a job no longer holds other clients; 0: no limit")
      ->check(CLI::Range(0.0, kMaxHoldLimitSeconds))
      ->capture_default_str();
  app.add_option("--metrics", options.metrics,
                 "Serve Prometheus metrics at http://ADDR/metrics, or on a unix socket that only "
                 "this user can open; may be given several times")
      ->type_name("ADDR:PORT|unix:PATH")
      ->allow_extra_args(false)
      ->check(metrics_fault);
}

void serve(Daemon& daemon, const ProgramOptions& options, const std::string& session,
           const std::string& ready, Show show) {
  std::list<HttpServer> servers;
  std::string urls;
  for (const std::string& where : options.metrics) {
    const MetricsAddress address = *parse_metrics_address(where);
    show.commands = address.is_unix();
    servers.emplace_back(address, [&daemon, &session, show] {
      const std::uint64_t now_ns = base::monotonic_ns();
      const shm::Snapshot snapshot = shm::take_snapshot(daemon.board(), now_ns);
      return exposition(daemon.board(), daemon.tally(), now_ns,
                        shm::find_outside(snapshot, session), show);
    });
    urls += " metrics=" + servers.back().url();
  }
  announce(ready + urls);
  daemon.run();
}

void run_program(const std::string& name, const ProgramOptions& options,
                 const std::function<void()>& body) {
  signal(SIGPIPE, SIG_IGN);  // the reader of a log pipe may be gone
  signal(SIGTTOU, SIG_IGN);  // as a background job of a terminal with `stty tostop`
  start_log(options.log_level);
  try {
    body();
  } catch (const base::UsageError& error) {
    announce(name + ": " + error.what());
    flush_log_and_exit(base::kExitUsage);
  } catch (const std::exception& error) {
    announce(name + ": " + error.what());
    flush_log_and_exit(base::kExitFailed);
  }
  flush_log_and_exit(base::kExitFine);
}

}  // namespace sluice::controller
