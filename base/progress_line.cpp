#include "base/progress_line.hpp"

#include <unistd.h>

#include <cstdio>

namespace sluice::base {
namespace {

constexpr double kTerminalS = 0.5;
constexpr double kPlainS = 5;

}  // namespace

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
