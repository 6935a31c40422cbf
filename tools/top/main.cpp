// `sluice top`: the session as it runs.
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <clocale>
#include <iostream>
#include <string>
#include <thread>
#include <variant>

#include "base/command_line.hpp"
#include "base/signal_fd.hpp"
#include "base/terminal.hpp"
#include "shm/mapping.hpp"
#include "shm/session.hpp"
#include "tools/common/sessions.hpp"
#include "tools/status/look.hpp"
#include "tools/top/follow.hpp"
#include "tools/top/frame.hpp"
#include "tools/top/json.hpp"
#include "tools/top/screen.hpp"

namespace sluice::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

struct Options {
  std::string session{base::kDefaultSession};
  double interval_s = 0.5;
  bool json = false;
  bool follow = false;
};

/// Looks at the session again and again. The board is opened each time: a session may end, and
/// another one of its name begin, between two looks.
class Looks {
 public:
  explicit Looks(std::string session) : session_(std::move(session)) {}

  /// Throws BoardError.
  View look() {
    shm::Snapshot now = look_at(session_);
    View view = make_view(before_, now);
    before_ = std::move(now);
    return view;
  }

  /// The same, or why there is nothing to see.
  std::variant<View, std::string> look_or_wait() {
    try {
      return look();
    } catch (const shm::NoBoard&) {
      return "no session " + session_ + " is running: waiting for it";
    } catch (const shm::BoardError& error) {
      return std::string(error.what());
    }
  }

 private:
  std::string session_;
  std::optional<shm::Snapshot> before_;
};

/// Of a frame that is printed, one after the other.
FrameSize plain_size() { return {base::terminal_columns().value_or(80), 0}; }

Frame frame_of(const std::variant<View, std::string>& seen, const std::string& session,
               FrameSize size) {
  if (const auto* view = std::get_if<View>(&seen)) return make_frame(*view, session, size);
  return make_message(session, std::get<std::string>(seen), size);
}

/// Rates need two looks.
int print_once(const Options& options) {
  Looks looks(options.session);
  looks.look();
  std::this_thread::sleep_for(Seconds(options.interval_s));
  const View view = looks.look();
  std::cout << (options.json ? top_json(view, options.session)
                             : plain_text(make_frame(view, options.session, plain_size())));
  return base::kExitFine;
}

enum class Woken { kTime, kKey, kEnd };

/// Until `deadline`, a key, or what ends the view.
Woken wait_until(Clock::time_point deadline, const base::SignalFd& signals, bool keys) {
  std::array<pollfd, 2> waits{{{signals.fd(), POLLIN, 0}, {keys ? STDIN_FILENO : -1, POLLIN, 0}}};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
  const int count =
      poll(waits.data(), waits.size(), static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
  if (count < 0) return errno == EINTR ? Woken::kKey : Woken::kEnd;  // a resize interrupts
  if (waits[0].revents != 0 || (waits[1].revents & (POLLHUP | POLLERR | POLLNVAL)) != 0) {
    return Woken::kEnd;
  }
  return waits[1].revents != 0 ? Woken::kKey : Woken::kTime;
}

/// What woke us, until the next look is due: true to go on.
bool pass_time(Screen* screen, const base::SignalFd& signals, Clock::time_point deadline, bool keys,
               const std::variant<View, std::string>& seen, const Options& options) {
  for (;;) {
    const Woken woken = wait_until(deadline, signals, keys);
    if (woken == Woken::kEnd) return false;
    if (woken == Woken::kTime) return true;
    if (screen == nullptr) continue;
    for (auto key = screen->key(); key != Screen::Key::kNone; key = screen->key()) {
      if (key == Screen::Key::kQuit) return false;
    }
    screen->show(frame_of(seen, options.session, screen->size()));
  }
}

int show_live(const Options& options) {
  Looks looks(options.session);
  std::variant<View, std::string> seen = looks.look();  // throws where there is no session
  const base::SignalFd signals{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
  const std::unique_ptr<Screen> screen = Screen::open();
  const bool keys = screen != nullptr && isatty(STDIN_FILENO) != 0;
  const auto interval = std::chrono::duration_cast<Clock::duration>(Seconds(options.interval_s));
  for (auto deadline = Clock::now() + interval;; deadline += interval) {
    if (screen != nullptr) {
      screen->show(frame_of(seen, options.session, screen->size()));
    } else {
      std::cout << plain_text(frame_of(seen, options.session, plain_size())) << std::endl;
    }
    if (!pass_time(screen.get(), signals, deadline, keys, seen, options)) return base::kExitFine;
    seen = looks.look_or_wait();
    if (deadline + interval < Clock::now()) deadline = Clock::now();  // was stopped meanwhile
  }
}

int top(int argc, char** argv) {
  CLI::App app("The session as it runs: who is active, who is held and by whom, how fast.",
               "sluice top");
  Options options;
  base::add_session_option(app, options.session);
  app.add_option("--interval", options.interval_s, "Seconds between two looks")
      ->capture_default_str()
      ->type_name("SECONDS")
      ->check(CLI::Range(0.02, 3600.0));
  auto* json = app.add_flag("--json", options.json, "Print one look as JSON and exit");
  app.add_flag("--follow", options.follow,
               "With --json: print a line per interval until it is stopped, with the duration of "
               "every job that ended; waits for the session to begin")
      ->needs(json);
  app.footer(
      "Keys: q quits. Into a pipe it prints one look as text, of COLUMNS columns (80), and exits.\n"
      "HELD: part of the last interval in which the client had work and was held. P50, P99: of\n"
      "its last N jobs (at most 64). docs/top.md explains every column.\n"
      "Exit code 1: no such session is running.\n\nExamples:\n"
      "  sluice top\n"
      "  sluice top --session b --interval 2\n"
      "  sluice top | cat\n"
      "  sluice top --json | jq '.clients[] | {pid, launches_per_s, recent_jobs}'\n"
      "  sluice top --json --follow --interval 0.02 | jq -c '.clients[] | {name, job_ns}'");
  if (const auto exit_code = base::parse(app, argc, argv)) return *exit_code;
  if (options.follow) {
    follow_session(options.session, options.interval_s);
    return base::kExitFine;
  }
  std::setlocale(LC_CTYPE, "");
  try {
    return options.json || isatty(STDOUT_FILENO) == 0 ? print_once(options) : show_live(options);
  } catch (const shm::NoBoard&) {
    if (options.json) {
      std::cout << R"({"session": ")" << options.session << R"(", "controller": null})" << '\n';
    }
    throw no_session(options.session);
  }
}

}  // namespace
}  // namespace sluice::tools

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice top", [&] { return sluice::tools::top(argc, argv); });
}
