#include "base/session.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "base/fd.hpp"

namespace sluice::base {
namespace {

constexpr std::string_view kPrefix = "sluice-";

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { closedir(folder); }
};

std::optional<uid_t> uid_in(std::string_view name) {
  uid_t uid = 0;
  if (name.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
  const char* end = name.data() + name.size();
  const auto result = std::from_chars(name.data() + kPrefix.size(), end, uid);
  if (result.ec != std::errc{} || result.ptr != end) return std::nullopt;
  return uid;
}

int open_folder(const std::string& folder) {
  return open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

}  // namespace

bool valid_session_name(std::string_view name) noexcept {
  if (name.empty() || name.size() > 32 || name.front() == '.' || name.back() == '.') return false;
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
  });
}

bool in_user_namespace() noexcept {
  std::array<char, 256> text{};
  const Fd file(open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC));
  if (!file || read(file.get(), text.data(), text.size() - 1) <= 0) return false;
  unsigned inside = 0;
  unsigned outside = 0;
  unsigned count = 0;
  // The first user namespace maps every uid to itself.
  return std::sscanf(text.data(), "%u %u %u", &inside, &outside, &count) == 3 &&
         !(inside == 0 && outside == 0 && count == ~0U);
}

uid_t session_uid() noexcept {
  const uid_t own = geteuid();
  if (!in_user_namespace()) return own;
  const std::unique_ptr<DIR, CloseFolder> folder(opendir("/dev/shm"));
  if (!folder) return own;
  while (const dirent* entry = readdir(folder.get())) {
    const std::optional<uid_t> uid = uid_in(entry->d_name);
    struct stat found {};
    if (!uid || *uid == own ||
        fstatat(dirfd(folder.get()), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    // The folder of another user, or of nobody that this namespace knows, may not be entered.
    if (S_ISDIR(found.st_mode) && found.st_uid == own &&
        faccessat(dirfd(folder.get()), entry->d_name, X_OK, AT_EACCESS) == 0) {
      return *uid;
    }
  }
  return own;
}

std::string runtime_dir() { return "/dev/shm/sluice-" + std::to_string(session_uid()); }

std::string mps_folder(std::string_view session) {
  return runtime_dir() + "/" + std::string(session) + ".mps";
}

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
