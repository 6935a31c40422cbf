#include "simgpu/channel/place.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string_view>

#include "base/clock.hpp"
#include "base/session.hpp"

namespace sluice::simgpu {
namespace {

constexpr const char* kFolderVariable = "SLUICE_SIMGPU_DIR";
constexpr std::string_view kSharedPrefix = "simgpu-";
constexpr std::size_t kTimeDigits = 16;

bool fits_an_address(const std::string& socket) {
  return socket.size() + std::string_view(kUnfinished).size() < sizeof(sockaddr_un::sun_path);
}

std::string shared_socket(const std::string& folder, std::uint64_t time) {
  char digits[kTimeDigits + 1];
  std::snprintf(digits, sizeof digits, "%016" PRIx64, time);
  return folder + "/" + std::string(kSharedPrefix) + digits;
}

base::Fd open_folder(const std::string& folder) {
  return base::Fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

base::Fd lock_runtime_dir() {
  try {
    return base::lock_runtime_dir();
  } catch (const std::exception&) {
    return {};  // the driver can report this only as an error code
  }
}

bool is_unfinished(std::string_view name) { return name.ends_with(kUnfinished); }

// The files in a shared folder that are sockets of GPU processes, by their names.
std::vector<std::string> sockets_in(const std::string& folder) {
  std::vector<std::string> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    if (entry.path().filename().native().starts_with(kSharedPrefix)) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

// In a folder that others may write to and that has no sticky bit, every user could remove the
// socket of the GPU process.
std::string fault_of_shared(const std::string& folder) {
  const std::string named = std::string(kFolderVariable) + "=" + folder + ": ";
  struct stat found {};
  if (folder.front() != '/') return named + "not an absolute path";
  if (!fits_an_address(shared_socket(folder, 0))) return named + "too long for a socket";
  if (stat(folder.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) {
    return named + "no such folder; make it with mode 1777";
  }
  if ((found.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (found.st_mode & S_ISVTX) == 0) {
    return named + "every user could remove the GPU's socket; chmod +t the folder";
  }
  if (faccessat(AT_FDCWD, folder.c_str(), R_OK | W_OK | X_OK, AT_EACCESS) != 0) {
    return named + "this user may not read and write the folder; give the folder mode 1777";
  }
  return {};
}

}  // namespace

std::string session_name() {
  const char* variable = std::getenv("SLUICE_SESSION");
  return variable != nullptr && *variable != 0 ? variable : std::string(base::kDefaultSession);
}

Place Place::of_environment() {
  Place place;
  const std::string session = session_name();
  const char* folder = std::getenv(kFolderVariable);
  place.shared_ = folder != nullptr && *folder != 0;
  place.folder_ = place.shared_ ? folder : base::runtime_dir();
  if (!base::valid_session_name(session)) {
    place.fault_ = "SLUICE_SESSION=" + session + ": not a session name";
  } else if (place.shared_) {
    place.fault_ = fault_of_shared(place.folder_);
  } else {
    place.socket_ = place.folder_ + "/" + session + ".simgpu";
    if (!fits_an_address(place.socket_)) place.fault_ = place.socket_ + ": too long for a socket";
  }
  return place;
}

bool Place::admits(uid_t user) const { return shared_ || user == getuid(); }

std::string Place::new_socket() const {
  return shared_ ? shared_socket(folder_, base::monotonic_ns()) : socket_;
}

std::vector<std::string> Place::sockets() const {
  if (!shared_) return {socket_};
  std::vector<std::string> found = sockets_in(folder_);
  std::erase_if(found, is_unfinished);
  return found;
}

base::Fd Place::lock() const {
  if (!shared_) return lock_runtime_dir();
  base::Fd fd = open_folder(folder_);
  int result = 0;
  while (fd && (result = flock(fd.get(), LOCK_EX)) != 0 && errno == EINTR) {
  }
  return result == 0 ? std::move(fd) : base::Fd();
}

std::optional<base::Fd> Place::lock_to_end() const {
  if (!shared_) return lock_runtime_dir();
  base::Fd fd = open_folder(folder_);
  if (fd && flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return std::nullopt;
  return fd;  // without the folder there is nobody to exclude
}

void Place::remove_unfinished() const {
  if (!shared_) {
    unlink((socket_ + kUnfinished).c_str());
    return;
  }
  for (const std::string& path : sockets_in(folder_)) {
    if (is_unfinished(path)) unlink(path.c_str());
  }
}

void Place::remove_folder_if_empty() const {
  if (!shared_) base::remove_runtime_dir_if_empty();
}

}  // namespace sluice::simgpu
