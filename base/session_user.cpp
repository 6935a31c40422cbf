#include "base/session_user.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <memory>
#include <optional>
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

}  // namespace

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

}  // namespace sluice::base
