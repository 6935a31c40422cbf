#include "base/mps_join.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/daemon.hpp"
#include "base/error.hpp"
#include "base/mps_daemon.hpp"
#include "base/mps_session.hpp"
#include "base/processes.hpp"
#include "base/user_name.hpp"

namespace sluice::base {
namespace {

namespace fs = std::filesystem;

void start_keeper(const Install& install, const std::string& session) {
  DaemonOptions options;
  options.args = {install.subcommand("mps"), "--session", session};
  const Daemon keeper(options);
}

/// Needs the lock of the folder.
void ensure_keeper(const Install& install, const std::string& session, const MpsFolder& folder) {
  if (folder.become_keeper()) start_keeper(install, session);
}

bool is_of(const MpsProcess& process, MpsProcess::Kind kind, const std::string& pipes) {
  return process.kind == kind && process.pipes == pipes;
}

/// The last daemon, if it lives and accepts clients; else 0.
int living_daemon(const MpsFolder& folder, const std::vector<MpsProcess>& processes) {
  const std::vector<int> numbers = folder.numbers(processes);
  if (numbers.empty()) return 0;
  const std::string pipes = folder.pipes(numbers.back());
  const bool lives = std::any_of(processes.begin(), processes.end(), [&](const auto& process) {
    return is_of(process, MpsProcess::Kind::kControl, pipes);
  });
  return lives && accepts_mps_clients(pipes) ? numbers.back() : 0;
}

void start(const MpsFolder& folder, int number, const std::string& control) {
  fs::create_directory(folder.pipes(number));
  fs::create_directory(folder.logs(number));
  const std::string file = folder.logs(number) + "/control.out";
  const Fd log(open(file.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log) throw RunError(file + ": " + std::strerror(errno));
  DaemonOptions options;
  options.args = {control, "-f"};
  // The daemon serves every GPU, so the indices of its clients are those of the machine.
  options.environment = environment_without({"CUDA_MPS_", "CUDA_VISIBLE_DEVICES=", "LD_PRELOAD="});
  for (const std::string& variable : mps_places(folder.pipes(number), folder.logs(number))) {
    options.environment.push_back(variable);
  }
  options.log = log.get();
  const Fd held = folder.hold(number);
  options.inherited_fd = held.get();
  const Daemon daemon(options);
  try {
    wait_for_mps(
        folder.pipes(number), [&] { return daemon.ended(); }, [&] { return daemon.last_words(); });
  } catch (const RunError&) {
    for (const MpsProcess& process : mps_processes(folder.path())) {
      if (process.pipes == folder.pipes(number)) signal_process(process, SIGTERM);
    }
    throw;
  }
}

}  // namespace

MpsJoin join_mps(const Install& install, const std::string& session, const std::string& control) {
  const MpsFolder folder(session);
  const Fd lock = folder.lock(true);
  if (!folder.claim()) {
    throw RunError("the MPS daemon of session " + session +
                   " is of another container, whose programs cannot be seen here: take another "
                   "session, or share the pid namespace (--pid=host)");
  }
  ensure_keeper(install, session, folder);
  const std::vector<MpsProcess> processes = mps_processes(folder.path());
  MpsJoin join;
  int number = living_daemon(folder, processes);
  if (number == 0) {
    const std::vector<int> numbers = folder.numbers(processes);
    number = numbers.empty() ? 1 : numbers.back() + 1;
    start(folder, number, control);
    join.started = true;
  }
  folder.note_user(number);
  join.pipes = folder.pipes(number);
  for (const MpsProcess& process : processes) {
    if (process.kind == MpsProcess::Kind::kUser && process.pipes != join.pipes) {
      join.apart.push_back(process.pid);
    }
  }
  return join;
}

void restore_mps_keeper(const Install& install, const std::string& session) {
  const MpsFolder folder(session);
  if (const Fd lock = folder.try_lock()) ensure_keeper(install, session, folder);
}

void leave_mps_to_keeper(const Install& install, const std::string& session) {
  if (MpsFolder(session).exists()) start_keeper(install, session);
}

std::string other_mps_daemons(const std::string& session) {
  std::vector<pid_t> own;
  for (const MpsProcess& process : mps_processes(MpsFolder(session).path())) {
    own.push_back(process.pid);
  }
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const pid_t pid = std::atoi(entry.path().filename().c_str());
    if (pid <= 0 || !is_mps_daemon(pid)) continue;
    if (std::find(own.begin(), own.end(), pid) != own.end()) continue;
    struct stat about {};
    if (stat(entry.path().c_str(), &about) != 0) continue;
    return "another MPS daemon runs on this machine (pid " + std::to_string(pid) + ", user " +
           user_name(about.st_uid) +
           "): its programs and those of this session take turns on a "
           "GPU that they share";
  }
  return {};
}

}  // namespace sluice::base
