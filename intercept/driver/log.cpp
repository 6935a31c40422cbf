#include "intercept/driver/log.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include "intercept/driver/process.hpp"
#include "intercept/driver/threads.hpp"

namespace sluice::intercept {
namespace {

constexpr int kUnknown = -1;

/// Reads SLUICE_LOG at the first line that may be written, because lookups log before any other
/// setup.
Level level_wanted() noexcept {
  const int known = g_process.log_level.load(std::memory_order_relaxed);
  if (known != kUnknown) return static_cast<Level>(known);
  const char* value = std::getenv("SLUICE_LOG");
  const std::string_view text = value == nullptr ? "" : value;
  Level level = Level::kWarn;
  if (text == "off") level = Level::kOff;
  if (text == "info") level = Level::kInfo;
  if (text == "debug") level = Level::kDebug;
  const bool first = g_process.log_level.exchange(static_cast<int>(level)) == kUnknown;
  if (first && level == Level::kWarn && !text.empty() && text != "warn") {
    Line(Level::kWarn) << "SLUICE_LOG=" << text << " is none of off, warn, info, debug; using warn";
  }
  return level;
}

/// Whether the variable has DEVICE:INODE of the file, as in systemd.exec(5).
bool is_file_of(const char* variable, const struct stat& about) noexcept {
  const char* const text = std::getenv(variable);
  if (text == nullptr) return false;
  char* colon = nullptr;
  const bool same_device = std::strtoull(text, &colon, 10) == about.st_dev;
  return same_device && *colon == ':' && std::strtoull(colon + 1, nullptr, 10) == about.st_ino;
}

/// Whether descriptor 2 is a socket that another process has made, as for a service with a journal
/// (the peer is then the journal) or below sshd (a pair without names).
bool is_inherited_socket(const struct stat& about) noexcept {
  ucred maker{};
  socklen_t size = sizeof(maker);
  if (getsockopt(STDERR_FILENO, SOL_SOCKET, SO_PEERCRED, &maker, &size) != 0) return false;
  const auto has_name = [](auto ask) {
    sockaddr_un address{};
    socklen_t length = sizeof(address);
    return ask(STDERR_FILENO, reinterpret_cast<sockaddr*>(&address), &length) != 0 ||
           length > sizeof(sa_family_t);
  };
  if (!has_name(getsockname) && !has_name(getpeername)) return maker.pid != getpid();
  return is_file_of("JOURNAL_STREAM", about);
}

/// Whether descriptor 2 is a standard error. In a program that has closed its own, another file has
/// the number: its database, or its connection to a server. What the program opened itself is
/// close-on-exec in most languages, and a database is open for reading too. So is a temporary file
/// of Python, but `sluice exec` names the one that it got as its standard error.
bool is_standard_error() noexcept {
  const int on_exec = fcntl(STDERR_FILENO, F_GETFD);
  const int flags = fcntl(STDERR_FILENO, F_GETFL);
  struct stat about {};
  if (on_exec != 0 || flags < 0 || fstat(STDERR_FILENO, &about) != 0) return false;
  if (S_ISCHR(about.st_mode)) return isatty(STDERR_FILENO) == 1;
  const bool writes_only = (flags & O_ACCMODE) == O_WRONLY;
  if (writes_only && (flags & O_APPEND) != 0) return true;  // a log
  if (g_process.driver_ready.load() && !g_process.standard_error.is_at(STDERR_FILENO)) return false;
  if (S_ISSOCK(about.st_mode)) return is_inherited_socket(about);
  return (S_ISREG(about.st_mode) || S_ISFIFO(about.st_mode)) &&
         (writes_only || is_file_of("SLUICE_STDERR", about));
}

/// While an object of this class lives, a write(2) of this thread can neither end nor stop the
/// program: beyond its size limit (SIGXFSZ), as a background job of a terminal with `stty tostop`
/// (SIGTTOU), or into a pipe whose reader has just ended (SIGPIPE).
class HarmlessWrites {
 public:
  HarmlessWrites() noexcept {
    sigset_t pending;  // of the program
    sigpending(&pending);
    sigemptyset(&harmful_);
    for (const int signal : {SIGXFSZ, SIGTTOU, SIGPIPE}) {
      if (sigismember(&pending, signal) == 0) sigaddset(&harmful_, signal);
    }
    pthread_sigmask(SIG_BLOCK, &harmful_, &before_);
  }
  ~HarmlessWrites() {
    constexpr timespec kNow{0, 0};
    while (sigtimedwait(&harmful_, nullptr, &kNow) > 0) continue;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  HarmlessWrites(const HarmlessWrites&) = delete;
  HarmlessWrites& operator=(const HarmlessWrites&) = delete;

 private:
  sigset_t harmful_;
  sigset_t before_;
};

}  // namespace

Line::Line(Level level) noexcept : wanted_(level <= level_wanted()) {
  *this << "sluice[" << static_cast<int>(getpid()) << "]: ";
  if (level == Level::kWarn) *this << "warning: ";
}

Line::~Line() {
  if (!wanted_) return;
  const NoCancel whole;
  const int saved_errno = errno;
  text_[size_++] = '\n';
  // A line that nobody reads is dropped: a full pipe would block the thread that must open gates,
  // and a pipe without a reader raises SIGPIPE. A line fits PIPE_BUF, so a write is never partial.
  pollfd out{STDERR_FILENO, POLLOUT, 0};
  if (is_standard_error() && poll(&out, 1, 0) == 1 && out.revents == POLLOUT) {
    const HarmlessWrites harmless;
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text_.data(), size_);
  }
  errno = saved_errno;
}

Line& Line::operator<<(std::string_view text) noexcept {
  const std::size_t space = text_.size() - 1 - size_;  // the newline always fits
  const std::size_t size = std::min(space, text.size());
  // Text of the board may be another user's. It must not control a terminal, or look like more
  // lines.
  std::transform(text.begin(), text.begin() + size, text_.begin() + size_, [](char c) {
    const bool printable = static_cast<unsigned char>(c) >= ' ' && c != '\x7f';
    return printable ? c : '?';
  });
  size_ += size;
  return *this;
}

Line& Line::operator<<(std::uint64_t number) noexcept {
  std::array<char, 20> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  return *this << std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data()));
}

Line& Line::operator<<(int number) noexcept {
  if (number < 0) *this << "-";
  const std::int64_t wide = number;
  return *this << static_cast<std::uint64_t>(wide < 0 ? -wide : wide);
}

}  // namespace sluice::intercept
