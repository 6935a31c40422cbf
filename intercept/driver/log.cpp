#include "intercept/driver/log.hpp"

#include <poll.h>
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
  if (poll(&out, 1, 0) == 1 && out.revents == POLLOUT) {
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
