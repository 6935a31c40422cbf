#include "shm/client_name.hpp"

#include <algorithm>
#include <array>

#include "shm/board.hpp"

namespace sluice::shm {
namespace {

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

/// Removes the first argument from `rest` and returns it.
std::string_view next(std::string_view& rest) {
  const std::string_view argument = rest.substr(0, rest.find('\0'));
  rest.remove_prefix(std::min(argument.size() + 1, rest.size()));
  return argument;
}

bool is_interpreter(std::string_view program) {
  constexpr std::array<std::string_view, 8> kOthers{"sh",   "bash", "dash",    "perl",
                                                    "ruby", "node", "Rscript", "julia"};
  return program.starts_with("python") || program.starts_with("pypy") ||
         std::find(kOthers.begin(), kOthers.end(), program) != kOthers.end();
}

}  // namespace

std::string client_name(std::string_view command_line) {
  const std::string_view program = base_name(next(command_line));
  if (!is_interpreter(program)) return std::string(program);
  while (!command_line.empty()) {
    const std::string_view argument = next(command_line);
    if (argument == "-c") break;
    if (argument == "-m") return std::string(next(command_line));
    // These options take the next argument, as in `python -W ignore train.py`.
    if (argument == "-W" || argument == "-X") {
      next(command_line);
    } else if (!argument.starts_with('-')) {
      return std::string(base_name(argument));
    }
  }
  return std::string(program);
}

std::string check_client_name(const std::string& name) {
  const bool printable =
      std::all_of(name.begin(), name.end(), [](char c) { return c < 0 || (c >= ' ' && c < 0x7f); });
  if (!name.empty() && name.size() < kNameSize && printable) return {};
  return "'" + name + "' cannot name a client: 1 to " + std::to_string(kNameSize - 1) +
         " bytes, no control characters";
}

}  // namespace sluice::shm
