#include "base/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

namespace sluice::base {

std::optional<std::size_t> terminal_columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = std::getenv("COLUMNS");
  const long asked = columns != nullptr ? std::strtol(columns, nullptr, 10) : 0;
  if (asked < 40 || asked > 1000) return std::nullopt;
  return static_cast<std::size_t>(asked);
}

}  // namespace sluice::base
