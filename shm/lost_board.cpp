#include "shm/lost_board.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <string_view>

namespace sluice::shm {
namespace {

constexpr const char* kFolder = "/dev/shm";

struct CloseFolder {
  void operator()(DIR* folder) const noexcept { closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

bool is_number(const char* text) { return *text >= '0' && *text <= '9'; }

bool leads_to(int folder, const char* entry, std::string_view target) {
  std::array<char, 128> found{};
  const ssize_t size = readlinkat(folder, entry, found.data(), found.size());
  return size > 0 && std::string_view(found.data(), static_cast<std::size_t>(size)) == target;
}

/// The same path in a container's /dev/shm is another file system.
bool is_of_this_shm(int fd) {
  struct stat file {};
  struct stat folder {};
  return fstat(fd, &file) == 0 && stat(kFolder, &folder) == 0 && S_ISREG(file.st_mode) &&
         file.st_dev == folder.st_dev && file.st_uid == geteuid();
}

base::Fd find_in(const std::string& process, const std::string& target,
                 const std::function<bool(int)>& wanted) {
  const Folder files(opendir((process + "/fd").c_str()));
  while (const dirent* entry = files ? readdir(files.get()) : nullptr) {
    if (!is_number(entry->d_name) || !leads_to(dirfd(files.get()), entry->d_name, target)) continue;
    base::Fd found(openat(dirfd(files.get()), entry->d_name, O_RDWR | O_CLOEXEC));
    if (found && is_of_this_shm(found.get()) && wanted(found.get())) return found;
  }
  return {};
}

}  // namespace

base::Fd find_lost(const std::string& name, const std::function<bool(int)>& wanted) {
  const std::string target = std::string(kFolder) + "/" + name + " (deleted)";
  const Folder processes(opendir("/proc"));
  while (const dirent* entry = processes ? readdir(processes.get()) : nullptr) {
    if (!is_number(entry->d_name)) continue;
    base::Fd found = find_in(std::string("/proc/") + entry->d_name, target, wanted);
    if (found) return found;
  }
  return {};
}

}  // namespace sluice::shm
