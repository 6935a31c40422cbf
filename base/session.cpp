#include "base/session.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

namespace sluice::base {

bool valid_session_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > 32 || name.front() == '.' || name.back() == '.') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

std::string runtime_dir() {
  const char* base = std::getenv("XDG_RUNTIME_DIR");
  if (base != nullptr && *base == '/') return std::string(base) + "/sluice";
  return "/tmp/sluice-" + std::to_string(geteuid());
}

void ensure_runtime_dir() {
  const std::string dir = runtime_dir();
  if (mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) {
    throw std::runtime_error("cannot create the folder " + dir + ": " + std::strerror(errno));
  }
  struct stat found {};
  if (lstat(dir.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) {
    throw std::runtime_error(dir + " is not a folder; remove it");
  }
  if (found.st_uid != geteuid() || (found.st_mode & 077U) != 0) {
    throw std::runtime_error(dir + " belongs to another user or is open to others; remove it");
  }
}

void remove_runtime_dir_if_empty() noexcept { rmdir(runtime_dir().c_str()); }

}  // namespace sluice::base
