#include "controller/program.hpp"

#include <signal.h>
#include <spdlog/async.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <list>
#include <memory>
#include <semaphore>
#include <string>
#include <system_error>
#include <thread>

#include "base/clock.hpp"
#include "base/command_line.hpp"
#include "base/error.hpp"
#include "base/fd.hpp"
#include "base/install.hpp"
#include "controller/http_server.hpp"
#include "controller/lookout.hpp"
#include "controller/metrics_address.hpp"
#include "controller/slice_answers.hpp"
#include "shm/outside.hpp"

namespace sluice::controller {
namespace {

constexpr double kMaxHoldLimitSeconds = 1e9;

constexpr std::size_t kQueuedLines = 1024;
constexpr std::chrono::milliseconds kFlushTime{300};
constexpr const char* kPlainLogger = "sluice.announce";

void register_logger(const char* name, const char* pattern, spdlog::level::level_enum level) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  auto logger = std::make_shared<spdlog::async_logger>(
      name, std::move(sink), spdlog::thread_pool(), spdlog::async_overflow_policy::overrun_oldest);
  logger->set_pattern(pattern);
  logger->set_level(level);
  logger->flush_on(spdlog::level::trace);
  spdlog::register_logger(logger);
}

/// Starts the log to stderr. A thread of its own writes it, so that a stopped terminal does not
/// stop the heartbeat. If the queue is full, the oldest lines are dropped. `level`: off, error,
/// warn, info, debug.
void start_log(const std::string& level) {
  spdlog::init_thread_pool(kQueuedLines, 1);
  register_logger("sluice", "%Y-%m-%d %H:%M:%S.%e %l: %v", spdlog::level::from_str(level));
  register_logger(kPlainLogger, "%v", spdlog::level::info);
  spdlog::set_default_logger(spdlog::get("sluice"));
}

/// Prints a line that scripts wait for, at every log level.
void announce(const std::string& line) { spdlog::get(kPlainLogger)->info(line); }

/// Gives the log thread 300 ms to write the queued lines, then ends the process. The thread may be
/// stuck on a terminal indefinitely.
[[noreturn]] void flush_log_and_exit(int status) {
  static std::binary_semaphore flushed{0};
  try {
    std::thread([] {
      spdlog::shutdown();
      flushed.release();
    }).detach();
  } catch (const std::system_error&) {  // no thread to be had: the log has its 300 ms all the same
  }
  static_cast<void>(flushed.try_acquire_for(kFlushTime));
  std::_Exit(status);
}

std::string metrics_fault(const std::string& address) {
  if (parse_metrics_address(address)) return {};
  return "'" + address +
         "' is not a loopback address with a port: use 127.0.0.1:9464, localhost:9464, "
         "[::1]:9464 or unix:/PATH";
}

}  // namespace

void add_program_options(CLI::App& app, ProgramOptions& options) {
  app.add_option("--log-level", options.log_level, "What to log to stderr")
      ->type_name("off|error|warn|info|debug")
      ->check(base::one_of({"off", "error", "warn", "info", "debug"}))
      ->capture_default_str();
  app.add_option("--max-hold", options.max_hold_seconds,
                 "Seconds after which a job no longer holds other clients; 0: no limit")
      ->type_name("S")
      ->check(base::number(0.0, kMaxHoldLimitSeconds))
      ->capture_default_str();
  app.add_option("--metrics", options.metrics,
                 "Serve Prometheus metrics at http://ADDR/metrics, or on a unix socket that only "
                 "this user can open; may be given several times")
      ->type_name("ADDR:PORT|unix:PATH")
      ->allow_extra_args(false)
      ->check(metrics_fault);
  app.add_option_function<std::string>(
         "--check-slices",
         [&options](const std::string& text) {
           options.check_slices = text == "always"  ? CheckSlices::kAlways
                                  : text == "never" ? CheckSlices::kNever
                                                    : CheckSlices::kAuto;
         },
         "Try once whether a GPU that nobody uses obeys time slices: auto, real ones; "
         "always, the simulated one too; never")
      ->envname("SLUICE_CHECK_SLICES")
      ->default_str("auto")
      ->type_name("auto|always|never")
      ->check(base::one_of({"auto", "always", "never"}));
}

void serve(Daemon& daemon, const ProgramOptions& options, const std::string& session,
           const std::string& ready, Show show) {
  const Lookout lookout(daemon.board(), session);
  std::list<HttpServer> servers;
  std::string urls;
  for (const std::string& where : options.metrics) {
    const MetricsAddress address = *parse_metrics_address(where);
    show.commands = address.is_unix();
    servers.emplace_back(address, [&daemon, &session, &lookout, show] {
      const std::uint64_t now_ns = base::monotonic_ns();
      const shm::Snapshot snapshot = shm::take_snapshot(daemon.board(), now_ns);
      return exposition(daemon.board(), daemon.tally(), now_ns,
                        shm::find_outside(snapshot, session), lookout.use(), show);
    });
    urls += " metrics=" + servers.back().url();
  }
  const SliceCheck slices(
      daemon.board(), daemon.tally(),
      {.when = options.check_slices,
       .session = session,
       .folder = answer_folder(),
       .command = {(base::Install::of_this_program().root() / "bin" / "sluice").string(), "doctor",
                   "--only-slices"}});
  announce(ready + urls);
  daemon.run();
}

void run_program(const std::string& name, const ProgramOptions& options,
                 const std::function<void()>& body) {
  base::hold_standard_files();
  signal(SIGPIPE, SIG_IGN);  // the reader of a log pipe may be gone
  signal(SIGXFSZ, SIG_IGN);  // with `ulimit -f`, a file cannot grow, and the error says so
  signal(SIGTTOU, SIG_IGN);  // as a background job of a terminal with `stty tostop`
  try {
    start_log(options.log_level);
  } catch (const std::exception& error) {  // no thread: too many processes of this user
    base::print_error(name, std::string("cannot start a thread: ") + error.what());
    std::_Exit(base::kExitFailed);
  }
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
