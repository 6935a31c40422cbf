// trainer-guard: ends what a training job has started, when the job or the server has ended. A
// process of its own, because nobody else is left after a SIGKILL of the server.
//
// Standard input: a socket of packets. "GROUP MARK": a job begins, with MARK in its environment,
// and leads this process group; 0: not known yet. "-": it has ended, and its group was killed. The
// end of the socket: the server has ended.
#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/fd.hpp"

namespace {

using sluice::base::Fd;
namespace fs = std::filesystem;

struct Job {
  pid_t group = 0;
  std::string mark;
};

std::string read_all(const std::string& path) {
  std::string text;
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 16384> chunk{};
  while (file) {
    const ssize_t got = read(file.get(), chunk.data(), chunk.size());
    if (got <= 0) break;
    text.append(chunk.data(), static_cast<std::size_t>(got));
  }
  return text;
}

/// Sluice's own, which serve other programs too. The first program that needs one starts it.
bool is_shared_daemon(const std::string& process) {
  std::error_code error;
  // After an upgrade the name ends with " (deleted)".
  const std::string program = fs::read_symlink(process + "/exe", error).filename().string();
  return program.starts_with("sluice-controller") || program.starts_with("sluice-simgpu");
}

/// Whether the process has the mark and was killed. It may end in the meantime, and another one may
/// get its pid; the descriptor stays with the first.
bool kill_if_marked(pid_t pid, const std::string& mark) {
  const Fd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process) return false;
  const std::string folder = "/proc/" + std::to_string(pid);
  const std::string environment = '\0' + read_all(folder + "/environ");
  if (environment.find('\0' + mark + '\0') == std::string::npos) return false;
  if (is_shared_daemon(folder)) return false;
  return syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0) == 0;
}

bool kill_all_marked(const std::string& mark) {
  const std::unique_ptr<DIR, int (*)(DIR*)> processes(opendir("/proc"), closedir);
  bool found = false;
  while (const dirent* entry = processes ? readdir(processes.get()) : nullptr) {
    const std::string_view name = entry->d_name;
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error == std::errc() && end == name.data() + name.size())
      found |= kill_if_marked(pid, mark);
  }
  return found;
}

/// A process may start another one while it is looked for, and one that is killed has its
/// environment for a while.
void end_marked(const std::string& mark) {
  constexpr int kMostRounds = 200;
  for (int i = 0; i < kMostRounds && kill_all_marked(mark); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void end(const Job& job, bool whole_group) {
  // A process of the group may have another environment.
  if (whole_group && job.group > 1) kill(-job.group, SIGKILL);
  end_marked(job.mark);
}

Job parse(std::string_view packet) {
  Job job;
  const auto space = packet.find(' ');
  if (space == std::string_view::npos) return job;
  std::from_chars(packet.data(), packet.data() + space, job.group);
  job.mark = packet.substr(space + 1);
  return job;
}

}  // namespace

int main() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE}) std::signal(number, SIG_IGN);
  setsid();
  prctl(PR_SET_NAME, "trainer-guard");
  // A pipe of the server must end with the server, and its folder may be unmounted.
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0 || dup2(null, STDOUT_FILENO) < 0 || dup2(null, STDERR_FILENO) < 0) return 1;
  if (chdir("/") != 0) return 1;
  Job job;
  for (;;) {
    std::array<char, 256> packet{};
    const ssize_t got = recv(STDIN_FILENO, packet.data(), packet.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    const Job next = parse({packet.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))});
    if (!job.mark.empty() && job.mark != next.mark) end(job, got <= 0);
    if (got <= 0) return 0;
    job = next;
  }
}
