#include "base/process_text.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/fd.hpp"

namespace sluice::base {
namespace {

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

std::string read_proc(pid_t pid, const char* file, std::size_t max_bytes) {
  const std::string path = "/proc/" + std::to_string(pid) + "/" + file;
  const Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(max_bytes, '\0');
  const ssize_t size = fd ? read(fd.get(), text.data(), text.size()) : 0;
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
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

}  // namespace sluice::base
