#include "simgpu/channel/runtime_dir.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

namespace sluice::simgpu {

std::string runtime_dir() {
  const char* xdg = std::getenv("XDG_RUNTIME_DIR");
  if (xdg != nullptr && *xdg == '/') return std::string(xdg) + "/sluice";
  return "/tmp/sluice-" + std::to_string(getuid());
}

std::string socket_path() {
  const char* variable = std::getenv("SLUICE_SESSION");
  const std::string session = variable != nullptr && *variable != 0 ? variable : "default";
  const bool plain = std::all_of(session.begin(), session.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
           c == '_' || c == '.';
  });
  const std::string path = runtime_dir() + "/simgpu." + session + ".sock";
  return plain && path.size() < sizeof(sockaddr_un::sun_path) ? path : std::string();
}

Fd lock_runtime_dir() {
  const std::string path = runtime_dir();
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return {};
  Fd dir(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!dir || fstat(dir.get(), &status) != 0) return {};
  if (status.st_uid != getuid() || (status.st_mode & 077) != 0) {
    errno = EPERM;
    return {};
  }
  while (flock(dir.get(), LOCK_EX) != 0) {
    if (errno != EINTR) return {};
  }
  return dir;
}

}  // namespace sluice::simgpu
