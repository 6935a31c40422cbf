#include "base/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace sluice::base {
namespace {

constexpr double kTerminalS = 0.5;
constexpr double kPlainS = 5;

}  // namespace

std::optional<std::size_t> terminal_columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const long asked = columns != nullptr ? std::strtol(columns, nullptr, 10) : 0;
  if (asked < 40 || asked > 1000) return std::nullopt;
  return static_cast<std::size_t>(asked);
}

ProgressLine::ProgressLine()
    : terminal_(isatty(STDERR_FILENO) == 1), next_s_(terminal_ ? 0 : kPlainS) {}

void ProgressLine::show(double elapsed_s, const std::string& text) {
  next_s_ = elapsed_s + (terminal_ ? kTerminalS : kPlainS);
  std::fputs((terminal_ ? "\r\033[K" + text : text + "\n").c_str(), stderr);
  shown_ = terminal_;
}

void ProgressLine::clear() {
  if (shown_) std::fputs("\r\033[K", stderr);
  shown_ = false;
}

}  // namespace sluice::base
