#include "base/runtime_dir.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "base/session_user.hpp"
#include "base/still_named.hpp"

namespace sluice::base {
namespace {

int open_folder(const std::string& folder) {
  return open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

}  // namespace

std::string runtime_dir() { return "/dev/shm/sluice-" + std::to_string(session_uid()); }

void ensure_private_folder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    throw std::runtime_error("cannot make the folder " + folder + ": " + std::strerror(errno));
  }
  struct stat found {};
  if (lstat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) {
    throw std::runtime_error(folder + " is not a folder; remove it");
  }
  if (found.st_uid != geteuid() || (found.st_mode & 077U) != 0) {
    throw std::runtime_error(folder + " belongs to another user or is open to others; remove it");
  }
}

void ensure_runtime_dir() { ensure_private_folder(runtime_dir()); }

Fd lock_runtime_dir() {
  const std::string folder = runtime_dir();
  for (;;) {
    ensure_private_folder(folder);
    Fd fd(open_folder(folder));
    if (!fd && errno == ENOENT) continue;
    if (!fd) throw std::runtime_error("cannot open " + folder + ": " + std::strerror(errno));
    int result = 0;
    while ((result = flock(fd.get(), LOCK_EX)) != 0 && errno == EINTR) {
    }
    if (result != 0)
      throw std::runtime_error("cannot lock " + folder + ": " + std::strerror(errno));
    if (still_named(fd.get(), folder)) return fd;
  }
}

void remove_runtime_dir_if_empty() noexcept {
  const std::string folder = runtime_dir();
  const Fd fd(open_folder(folder));
  if (fd && flock(fd.get(), LOCK_EX | LOCK_NB) == 0) rmdir(folder.c_str());
}

}  // namespace sluice::base
