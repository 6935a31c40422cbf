#include "base/mps_session.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>
#include <thread>

#include "base/error.hpp"
#include "base/processes.hpp"
#include "base/session.hpp"

namespace sluice::base {
namespace {

namespace fs = std::filesystem;

/// The kernel cuts names of processes at 15 characters, so the daemon and its server have one name.
constexpr std::string_view kName = "nvidia-cuda-mps";
constexpr std::string_view kServer = "nvidia-cuda-mps-server";
constexpr std::string_view kForeground = "-f";
constexpr std::size_t kMostEnvironment = std::size_t{4} << 20U;

template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, number);
  if (result.ec != std::errc{} || result.ptr != end) return std::nullopt;
  return number;
}

/// A file of /proc/PID, in a buffer that the caller keeps for the next one.
std::string_view read_whole(pid_t pid, const char* file, std::string& buffer) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + file;
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return {};
  if (buffer.size() < 4096) buffer.resize(std::size_t{64} << 10U);
  std::size_t size = 0;
  for (;;) {
    const ssize_t got = read(fd.get(), buffer.data() + size, buffer.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {buffer.data(), size};
    size += static_cast<std::size_t>(got);
    if (size < buffer.size()) continue;
    if (size >= kMostEnvironment) return {buffer.data(), size};
    buffer.resize(buffer.size() * 2);
  }
}

/// The pipe folder in the environment of a process, if it is below `folder`.
std::string pipes_in(std::string_view environment, const std::string& folder) {
  const std::string wanted = std::string(kMpsPipes) + "=" + folder + "/";
  while (!environment.empty()) {
    const std::size_t end = environment.find('\0');
    const std::string_view entry = environment.substr(0, end);
    if (entry.starts_with(wanted)) return std::string(entry.substr(std::strlen(kMpsPipes) + 1));
    if (end == std::string_view::npos) break;
    environment.remove_prefix(end + 1);
  }
  return {};
}

bool is_same(const struct stat& one, const struct stat& other) {
  return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/// Whether the process finds another folder at this path than we do: it has another /dev/shm, as in
/// a container that shares the pids.
bool has_other_folder(pid_t pid, const std::string& folder) {
  struct stat ours {};
  struct stat theirs {};
  const std::string path = "/proc/" + std::to_string(pid) + "/root" + folder;
  if (stat(path.c_str(), &theirs) != 0) return false;
  return stat(folder.c_str(), &ours) != 0 || !is_same(ours, theirs);
}

/// Nothing for the command that the daemon's program also is: `echo quit |
/// nvidia-cuda-mps-control`.
std::optional<MpsProcess::Kind> kind_of(pid_t pid) {
  if (short_name(pid) != kName) return MpsProcess::Kind::kUser;
  std::string line = read_proc(pid, "cmdline", 4096);
  if (line.find(kServer) != std::string::npos) return MpsProcess::Kind::kServer;
  line.insert(0, 1, '\0');
  const std::string foreground = '\0' + std::string(kForeground) + '\0';
  return line.find(foreground) != std::string::npos ? std::optional(MpsProcess::Kind::kControl)
                                                    : std::nullopt;
}

std::string user_prefix(int number) { return std::to_string(number) + ".user."; }

/// What is left of a name that begins with `prefix`: PID.START.
std::optional<pid_t> noted_process(std::string_view name, const std::string& prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const auto pid = number_in<pid_t>(name.substr(0, dot));
  const auto start = number_in<std::uint64_t>(name.substr(dot + 1));
  if (!pid || !start || *start == 0 || start_time_of(*pid) != *start) return std::nullopt;
  return pid;
}

}  // namespace

std::uint64_t start_time_of(pid_t pid) {
  constexpr int kState = 3;
  constexpr int kStart = 22;
  const std::string stat = read_proc(pid, "stat", 1024);
  // The name in the second field may have blanks and parentheses.
  std::size_t at = stat.rfind(')');
  if (at == std::string::npos || at + 2 >= stat.size()) return 0;
  at += 2;
  if (stat[at] == 'Z' || stat[at] == 'X') return 0;
  for (int field = kState; field < kStart; ++field) {
    at = stat.find(' ', at);
    if (at == std::string::npos) return 0;
    ++at;
  }
  const std::size_t end = std::min(stat.find(' ', at), stat.size());
  return number_in<std::uint64_t>(std::string_view(stat).substr(at, end - at)).value_or(0);
}

std::vector<MpsProcess> mps_processes(const std::string& folder) {
  std::vector<MpsProcess> found;
  std::string buffer;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    const std::string name = entry.path().filename();
    const auto pid = number_in<pid_t>(name);
    struct stat about {};
    if (!pid || *pid == getpid() || stat(entry.path().c_str(), &about) != 0 ||
        about.st_uid != geteuid()) {
      continue;
    }
    // The start first: a process that replaces this one in between has another.
    const std::uint64_t start = start_time_of(*pid);
    std::string pipes = pipes_in(read_whole(*pid, "environ", buffer), folder);
    if (start == 0 || pipes.empty() || has_other_folder(*pid, folder)) continue;
    const auto kind = kind_of(*pid);
    if (kind && start_time_of(*pid) == start) {
      found.push_back({*pid, start, *kind, std::move(pipes)});
    }
  }
  return found;
}

void signal_process(const MpsProcess& process, int signal) noexcept {
  const Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0U)));
  if (start_time_of(process.pid) != process.start) return;
  if (pidfd) {
    syscall(SYS_pidfd_send_signal, pidfd.get(), signal, nullptr, 0U);
  } else {  // some sandboxes have no pidfd
    kill(process.pid, signal);
  }
}

MpsFolder::MpsFolder(const std::string& session) : path_(mps_folder(session)) {}

bool MpsFolder::exists() const { return access(path_.c_str(), F_OK) == 0; }

std::vector<int> MpsFolder::numbers(const std::vector<MpsProcess>& processes) const {
  std::set<int> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path_, ignored)) {
    const std::string name = entry.path().filename();
    if (const auto number = number_in<int>(name)) found.insert(*number);
  }
  for (const MpsProcess& process : processes) {
    const std::string name = fs::path(process.pipes).filename();
    const auto number = number_in<int>(name);
    if (number && process.pipes == pipes(*number)) found.insert(*number);
  }
  return {found.begin(), found.end()};
}

bool MpsFolder::claim() const {
  std::error_code unknown;
  std::string own = fs::read_symlink("/proc/self/ns/pid", unknown);
  own += ' ' + fs::read_symlink("/proc/self/ns/user", unknown).string();
  const std::string file = path_ + "/namespace";
  std::string of;
  std::getline(std::ifstream(file), of);
  if (of == own) return true;
  if (!of.empty()) {
    const Fd right = become_keeper();
    const std::vector<int> left = numbers({});
    const bool any_lives =
        std::any_of(left.begin(), left.end(), [this](int number) { return is_held(number); });
    if (!right || any_lives) return false;
    for (const auto& entry : fs::directory_iterator(path_, unknown)) {
      fs::remove_all(entry.path(), unknown);
    }
  }
  std::ofstream(file) << own << '\n';
  return true;
}

Fd MpsFolder::lock(bool make, std::chrono::seconds patience) const {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    if (make) {
      const Fd parent = lock_runtime_dir();
      ensure_private_folder(path_);
    }
    Fd fd(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!fd && errno == ENOENT) {
      if (make) continue;
      return fd;
    }
    if (!fd) throw RunError("cannot open " + path_ + ": " + std::strerror(errno));
    while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) {
        throw RunError("cannot lock " + path_ + ": " + std::strerror(errno));
      }
      if (std::chrono::steady_clock::now() >= deadline) {
        throw RunError("another sluice command has started or ended the MPS daemon for " +
                       std::to_string(patience.count()) + " s; is it stopped? (" + path_ + ")");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    // Its keeper may have removed it meanwhile.
    if (still_named(fd.get(), path_)) return fd;
  }
}

Fd MpsFolder::try_lock() const noexcept {
  Fd fd(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (fd && (flock(fd.get(), LOCK_EX | LOCK_NB) != 0 || !still_named(fd.get(), path_))) fd.reset();
  return fd;
}

Fd MpsFolder::become_keeper() const {
  Fd fd(open((path_ + "/keeper").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (fd && flock(fd.get(), LOCK_EX | LOCK_NB) != 0) fd.reset();
  return fd;
}

void MpsFolder::note_user(int number) const {
  const pid_t pid = getpid();
  const std::string name = path_ + "/" + user_prefix(number) + std::to_string(pid) + "." +
                           std::to_string(start_time_of(pid));
  const Fd file(open(name.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  if (!file) throw RunError("cannot make " + name + ": " + std::strerror(errno));
}

std::vector<pid_t> MpsFolder::noted_users(int number) const {
  std::vector<pid_t> users;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path_, ignored)) {
    const std::string name = entry.path().filename();
    const std::string prefix = user_prefix(number);
    if (!name.starts_with(prefix)) continue;
    if (const auto pid = noted_process(name, prefix)) {
      users.push_back(*pid);
    } else {
      fs::remove(entry.path(), ignored);
    }
  }
  return users;
}

Fd MpsFolder::hold(int number) const {
  const std::string file = pipes(number) + ".held";
  Fd fd(open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd || flock(fd.get(), LOCK_SH) != 0) throw RunError(file + ": " + std::strerror(errno));
  return fd;
}

bool MpsFolder::is_held(int number) const noexcept {
  const Fd fd(open((pipes(number) + ".held").c_str(), O_RDWR | O_CLOEXEC));
  return fd && flock(fd.get(), LOCK_EX | LOCK_NB) != 0;
}

void MpsFolder::remove(int number) const noexcept {
  std::error_code ignored;
  fs::remove_all(pipes(number), ignored);
  fs::remove_all(logs(number), ignored);
  fs::remove(pipes(number) + ".held", ignored);
}

void MpsFolder::remove_all() const noexcept {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
  remove_runtime_dir_if_empty();
}

}  // namespace sluice::base
