#include "controller/process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

#include "base/clock.hpp"

namespace sluice::controller {
namespace {

/// SO_PEERPIDFD of Linux 6.5; the headers of Debian 12 do not have it.
constexpr int kSoPeerPidfd = 77;

int pidfd_open(pid_t pid) noexcept {
  return pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1;
}

std::string read_proc(pid_t pid, const char* file, std::size_t max_bytes) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + file;
  const base::Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(max_bytes, '\0');
  const ssize_t size = fd ? read(fd.get(), text.data(), text.size()) : 0;
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

/// Length of the UTF-8 character at the front of `text`; 0 if the text does not begin with one.
std::size_t character_size(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  if (lead < 0x80) return 1;
  const std::size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < size) return 0;
  const bool continued = std::all_of(text.begin() + 1, text.begin() + static_cast<long>(size),
                                     [](char c) { return (c & 0xc0) == 0x80; });
  if (!continued) return 0;
  // The second byte decides about overlong forms, surrogates and code points above U+10FFFF.
  const auto second = static_cast<unsigned char>(text[1]);
  const bool invalid = (lead == 0xe0 && second < 0xa0) || (lead == 0xed && second > 0x9f) ||
                       (lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second > 0x8f);
  return invalid ? 0 : size;
}

}  // namespace

ClientProcess ClientProcess::peer_of(int socket, pid_t pid) noexcept {
  ClientProcess process;
  process.pid_ = pid;
  int fd = -1;
  socklen_t size = sizeof(fd);
  if (pid > 0 && getsockopt(socket, SOL_SOCKET, kSoPeerPidfd, &fd, &size) == 0) {
    process.pidfd_ = base::Fd(fd);
  } else if (errno == ENOPROTOOPT) {  // before Linux 6.5. Any other error: the peer is gone.
    process.pidfd_ = base::Fd(pidfd_open(pid));
  }
  return process;
}

ClientProcess ClientProcess::with_pid(pid_t pid) noexcept {
  ClientProcess process;
  process.pid_ = pid;
  process.pidfd_ = base::Fd(pidfd_open(pid));
  return process;
}

bool ClientProcess::ended() const noexcept {
  if (!pidfd_) return pid_ <= 0 || (kill(pid_, 0) != 0 && errno == ESRCH);
  pollfd ready{pidfd_.get(), POLLIN, 0};
  return poll(&ready, 1, 0) == 1;
}

std::optional<std::uint64_t> started_ns(pid_t pid) {
  const std::string stat = read_proc(pid, "stat", 1024);
  // The name in parentheses may contain spaces and parentheses, so count the fields after its end.
  // The first of them is field 3. Field 22 is the start time in ticks of CLOCK_BOOTTIME.
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  for (int number = 3; number < 22; ++number) fields >> field;
  std::uint64_t ticks = 0;
  if (!(fields >> ticks)) return std::nullopt;
  const auto ticks_per_second = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  const std::uint64_t boottime = ticks * (1'000'000'000U / ticks_per_second);
  const std::uint64_t monotonic =
      base::monotonic_ns();  // first, so that the difference is not negative
  const std::uint64_t suspended = base::clock_ns(CLOCK_BOOTTIME) - monotonic;
  return boottime > suspended ? boottime - suspended : 0;
}

std::string short_name(pid_t pid) {
  std::string name = read_proc(pid, "comm", 64);
  if (!name.empty() && name.back() == '\n') name.pop_back();
  return printable(name, name.size());
}

std::string command_line(pid_t pid, std::size_t max_bytes) {
  constexpr std::size_t kMostPaths = 4096;
  std::string line = read_proc(pid, "cmdline", kMostPaths);
  // Without the folder of the program, more of the arguments fit.
  const std::size_t slash = line.substr(0, line.find('\0')).rfind('/');
  if (slash != std::string::npos) line.erase(0, slash + 1);
  while (!line.empty() && line.back() == '\0') line.pop_back();
  std::replace(line.begin(), line.end(), '\0', ' ');
  return printable(line, max_bytes);
}

std::string printable(std::string_view text, std::size_t max_bytes) {
  std::string result;
  while (!text.empty()) {
    const std::size_t size = character_size(text);
    const auto lead = static_cast<unsigned char>(text.front());
    const bool good = size > 0 && lead >= 0x20 && lead != 0x7f;
    const std::string_view character = good ? text.substr(0, size) : "?";
    if (result.size() + character.size() > max_bytes) break;
    result += character;
    text.remove_prefix(size > 0 ? size : 1);
  }
  return result;
}

}  // namespace sluice::controller
