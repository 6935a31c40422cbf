#pragma once
#include <sched.h>
#include <sys/mount.h>

#include <string>

namespace sluice::test {

/// Gives the calling process a /dev/shm of its own with room for `bytes`. For a forked child with
/// one thread. False if this machine does not allow it.
[[nodiscard]] inline bool enter_small_shm(std::size_t bytes) {
  const std::string size = "size=" + std::to_string(bytes);
  return unshare(CLONE_NEWNS) == 0 &&
         mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", "/dev/shm", "tmpfs", 0, size.c_str()) == 0;
}

}  // namespace sluice::test
