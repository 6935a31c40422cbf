#include "base/user_name.hpp"

#include <pwd.h>

#include <array>
#include <cstdio>
#include <memory>

namespace sluice::base {
namespace {

struct CloseFile {
  void operator()(std::FILE* file) const noexcept { std::fclose(file); }
};

}  // namespace

std::string user_name(uid_t uid) {
  std::array<char, 4096> text{};
  passwd entry{};
  passwd* found = nullptr;
  const bool known =
      getpwuid_r(uid, &entry, text.data(), text.size(), &found) == 0 && found != nullptr;
  return known ? found->pw_name : std::to_string(uid);
}

std::optional<uid_t> find_user(const std::string& name) {
  std::array<char, 16384> text{};
  passwd entry{};
  passwd* found = nullptr;
  getpwnam_r(name.c_str(), &entry, text.data(), text.size(), &found);
  return found != nullptr ? std::optional(found->pw_uid) : std::nullopt;
}

std::string local_user_name(uid_t uid) {
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen("/etc/passwd", "re"));
  std::array<char, 4096> text{};
  passwd entry{};
  passwd* found = nullptr;
  while (file && fgetpwent_r(file.get(), &entry, text.data(), text.size(), &found) == 0) {
    if (found->pw_uid == uid) return found->pw_name;
  }
  return "uid " + std::to_string(uid);
}

}  // namespace sluice::base
