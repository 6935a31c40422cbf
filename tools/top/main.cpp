// `sluice top`: the live view of a session.
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
#include <vector>

#include "base/command_line.hpp"
#include "base/node_service.hpp"
#include "base/signal_fd.hpp"
#include "base/terminal.hpp"
#include "shm/mapping.hpp"
#include "shm/outside.hpp"
#include "shm/policy_text.hpp"
#include "shm/session.hpp"
#include "tools/common/sessions.hpp"
#include "tools/set/choice.hpp"
#include "tools/set/request.hpp"
#include "tools/status/format.hpp"
#include "tools/status/look.hpp"
#include "tools/top/controls.hpp"
#include "tools/top/follow.hpp"
#include "tools/top/frame.hpp"
#include "tools/top/json.hpp"
#include "tools/top/screen.hpp"

namespace sluice::tools {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

struct Options {
  std::string session = base::default_session();
  double interval_s = 0.5;
  bool json = false;
  bool follow = false;
};

/// What a look has shown: the session, or why there is nothing to show.
using Seen = std::variant<View, std::string>;

/// Looks at the session again and again. Opens the board for each look: between two looks the
/// session may end and another session of the same name may begin.
class Looks {
 public:
  explicit Looks(std::string session) : session_(std::move(session)) {}

  /// Throws BoardError.
  View look() {
    shm::Snapshot now = look_at(session_);
    now.outside = outside(now);
    View view = make_view(before_, now);
    before_ = std::move(now);
    return view;
  }

  Seen look_or_wait() {
    try {
      return look();
    } catch (const shm::NoBoard&) {
      return "no session " + session_ + " is running: waiting for it";
    } catch (const shm::BoardError& error) {
      return std::string(error.what());
    }
  }

 private:
  /// The driver is asked at most every 2 s.
  std::vector<shm::OutsideProcess> outside(const shm::Snapshot& now) {
    constexpr std::uint64_t kPeriodNs = 2'000'000'000;
    if (before_ && before_->board_id == now.board_id && now.taken_ns - asked_ns_ < kPeriodNs) {
      return before_->outside;
    }
    asked_ns_ = now.taken_ns;
    return shm::describe_outside(now, session_);
  }

  std::string session_;
  std::optional<shm::Snapshot> before_;
  std::uint64_t asked_ns_ = 0;
};

/// The size of frames that are printed one after the other.
FrameSize plain_size() { return {base::terminal_columns().value_or(80), 0}; }

Frame frame_of(const Seen& seen, const Options& options, FrameSize size,
               const Controls& controls = {}) {
  if (const auto* view = std::get_if<View>(&seen)) {
    return make_frame(*view, options.session, size, controls);
  }
  return make_message(options.session, std::get<std::string>(seen), size);
}

/// Asks the controller for the policy that the user has typed. Returns what to tell the user.
std::string change_policy(const std::string& session, const View& view, const Controls& controls) {
  const shm::Policy policy = *shm::parse_policy(controls.policy());
  shm::ClientSnapshot changed = controls.client();
  try {
    ask_for(session, view.now.board_id, changed,
            {.priority = {}, .policy = policy, .target = {}, .memory = {}});
  } catch (const std::exception& error) {
    return error.what();
  }
  std::string told = describe(changed) + ": policy " + changed.policy + " -> " + controls.policy();
  changed.policy = controls.policy();
  for (const std::string& warning :
       {shm::policy_warning(policy), ungated_note(view.now, changed)}) {
    if (!warning.empty()) told += "; " + warning;
  }
  return told;
}

/// Rates need two looks.
int print_once(const Options& options) {
  Looks looks(options.session);
  looks.look();
  std::this_thread::sleep_for(Seconds(options.interval_s));
  const View view = looks.look();
  std::cout << (options.json ? top_json(view, options.session)
                             : plain_text(frame_of(view, options, plain_size())));
  return base::kExitFine;
}

enum class Woken { kTime, kKey, kEnd };

/// Waits for `deadline`, a key, or whatever ends the view.
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

/// The live view in a terminal.
class Live {
 public:
  explicit Live(const Options& options) : options_(options), looks_(options.session) {}

  int run() {
    seen_ = looks_.look();  // throws if there is no session
    const base::SignalFd signals{SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    screen_ = Screen::open();
    const auto interval = std::chrono::duration_cast<Clock::duration>(Seconds(options_.interval_s));
    for (auto deadline = Clock::now() + interval;; deadline += interval) {
      show();
      if (!pass_time(signals, deadline)) return base::kExitFine;
      seen_ = looks_.look_or_wait();
      if (deadline + interval < Clock::now()) deadline = Clock::now();  // the process was stopped
    }
  }

 private:
  void show() {
    if (screen_ != nullptr) {
      screen_->show(frame_of(seen_, options_, screen_->size(), controls_));
    } else {
      std::cout << plain_text(frame_of(seen_, options_, plain_size())) << std::endl;
    }
  }

  /// Obeys keys until the next look is due. False to quit.
  bool pass_time(const base::SignalFd& signals, Clock::time_point deadline) {
    const bool keys = screen_ != nullptr && isatty(STDIN_FILENO) != 0;
    for (;;) {
      const Woken woken = wait_until(deadline, signals, keys);
      if (woken == Woken::kEnd) return false;
      if (woken == Woken::kTime) return true;
      if (screen_ == nullptr) continue;
      while (const auto key = screen_->key()) {
        if (!obey(*key)) return false;
      }
      show();
    }
  }

  /// False to quit.
  bool obey(Key key) {
    const View nothing;
    const auto* seen = std::get_if<View>(&seen_);
    const View& view = seen != nullptr ? *seen : nothing;
    const Controls::Action action = controls_.press(key, view);
    if (action == Controls::Action::kSetPolicy) {
      controls_.say(change_policy(options_.session, view, controls_));
    }
    return action != Controls::Action::kQuit;
  }

  const Options& options_;
  Looks looks_;
  Seen seen_;
  Controls controls_;
  std::unique_ptr<Screen> screen_;
};

int top(int argc, char** argv) {
  CLI::App app("Show a session live: who is active, who is held and by whom, how fast.",
               "sluice top");
  Options options;
  base::add_session_option(app, options.session);
  app.add_option("--interval", options.interval_s, "Seconds between two looks")
      ->capture_default_str()
      ->type_name("SECONDS")
      ->check(base::number(0.02, 3600));
  auto* json = app.add_flag("--json", options.json, "Print one look as JSON and exit");
  app.add_flag("--follow", options.follow,
               "With --json: print a line per interval until stopped, with the duration of every "
               "job that ended; waits for the session to begin")
      ->needs(json);
  app.footer(
      "Keys: ? help, up and down select, p policy of the selected client, s sort, f or / filter,\n"
      "q quit. In a pipe it prints one look as text, COLUMNS wide (80), and exits.\n"
      "docs/reference/top.md explains every column. Exit code 1: no such session is running.\n\n"
      "Examples:\n"
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
    return options.json || isatty(STDOUT_FILENO) == 0 ? print_once(options) : Live(options).run();
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
