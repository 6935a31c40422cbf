#include "base/mps_keeper.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <set>
#include <thread>
#include <vector>

#include "base/mps_session.hpp"

namespace sluice::base {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using Kind = MpsProcess::Kind;

constexpr auto kPause = 250ms;
constexpr auto kPauseNextToController = 1s;
constexpr auto kPatience = 10s;
/// How often a keeper looks whether another one, which may be about to die, is still there.
constexpr int kMostTries = 40;

/// The processes of one daemon.
std::vector<MpsProcess> of(const std::vector<MpsProcess>& all, const std::string& pipes) {
  std::vector<MpsProcess> found;
  std::copy_if(all.begin(), all.end(), std::back_inserter(found),
               [&](const MpsProcess& process) { return process.pipes == pipes; });
  return found;
}

bool any(const std::vector<MpsProcess>& processes, Kind kind) {
  return std::any_of(processes.begin(), processes.end(),
                     [&](const MpsProcess& process) { return process.kind == kind; });
}

/// The daemon and its servers; a new server may have come since the last look.
std::vector<MpsProcess> programs_of_mps(const MpsFolder& folder, const std::string& pipes) {
  std::vector<MpsProcess> found = of(mps_processes(folder.path()), pipes);
  std::erase_if(found, [](const MpsProcess& process) { return process.kind == Kind::kUser; });
  return found;
}

/// SIGTERM to the daemon also ends its server. A server without a daemon gets the signal itself,
/// and what does not obey is killed. Returns whether nothing is left.
bool end(const MpsFolder& folder, const std::string& pipes) {
  const Clock::time_point deadline = Clock::now() + kPatience;
  bool asked_servers = false;
  std::vector<MpsProcess> left = programs_of_mps(folder, pipes);
  for (const MpsProcess& process : left) {
    if (process.kind == Kind::kControl) signal_process(process, SIGTERM);
  }
  while (!left.empty() && Clock::now() < deadline) {
    if (!asked_servers && !any(left, Kind::kControl)) {
      for (const MpsProcess& process : left) signal_process(process, SIGTERM);
      asked_servers = true;
    }
    std::this_thread::sleep_for(20ms);
    left = programs_of_mps(folder, pipes);
  }
  for (const MpsProcess& process : left) signal_process(process, SIGKILL);
  const Clock::time_point last = Clock::now() + 1s;
  while (!left.empty() && Clock::now() < last) {
    std::this_thread::sleep_for(20ms);
    left = programs_of_mps(folder, pipes);
  }
  return left.empty();
}

/// Ends what nobody uses now, nor at the last look: while a process hands over to its child, one
/// look may miss both. `idle`: the daemons that nobody used at the last look. Returns whether
/// nothing is left.
bool look_after(const MpsFolder& folder, bool controller_lives, std::set<int>& idle) {
  const std::vector<MpsProcess> all = mps_processes(folder.path());
  const std::vector<int> numbers = folder.numbers(all);
  bool nothing = true;
  for (const int number : numbers) {
    const std::vector<MpsProcess> found = of(all, folder.pipes(number));
    const bool noted = !folder.noted_users(number).empty();  // forgets those that have ended
    const bool used = noted || any(found, Kind::kUser);
    // New programs join the last one only.
    const bool wanted = controller_lives && number == numbers.back() && any(found, Kind::kControl);
    if (used || wanted) {
      idle.erase(number);
      nothing = false;
    } else if (idle.insert(number).second || !end(folder, folder.pipes(number)) ||
               folder.is_held(number)) {
      nothing = false;
    } else {
      folder.remove(number);
    }
  }
  return nothing;
}

}  // namespace

void keep_mps(const std::string& session, const std::function<bool()>& controller_lives) {
  const MpsFolder folder(session);
  constexpr std::chrono::hours kForGood{24 * 365};
  Fd keeper;
  std::set<int> idle;
  int tries = 0;
  for (;;) {
    bool controller = false;
    {
      Fd lock = folder.lock(false, kForGood);
      if (!lock) {
        // Somebody may have cleared /dev/shm, and the daemon lives all the same.
        if (mps_processes(folder.path()).empty()) return;
        lock = folder.lock(true, kForGood);
        keeper.reset();
      }
      if (!keeper) keeper = folder.become_keeper();
      if (!keeper && ++tries == kMostTries) return;
      if (keeper) {
        controller = controller_lives();
        if (look_after(folder, controller, idle)) return folder.remove_all();
      }
    }
    std::this_thread::sleep_for(controller ? kPauseNextToController : kPause);
  }
}

}  // namespace sluice::base
