#include "controller/listener.hpp"

#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/node_service.hpp"
#include "shm/session.hpp"

namespace sluice::controller {
namespace {

constexpr int kAcceptQueue = 1024;
constexpr int kBindTries = 50;
constexpr mode_t kNodeMode = 0666;

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
  throw std::runtime_error("cannot " + std::string(what) + " the socket " + path + ": " +
                           std::strerror(error));
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

/// Throws if there is something else than a socket.
void require_socket_or_nothing(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0 || S_ISSOCK(found.st_mode)) return;
  throw std::runtime_error(path + " is not a socket; remove it");
}

}  // namespace

Listener::Listener(std::string_view session)
    : path_(shm::socket_path(session)), is_node_(session == base::kNodeSession) {
  fd_ = listen_at_name();
}

base::Fd Listener::listen_at_name() {
  base::Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail(path_, "make", errno);
  // A socket refuses connections until it listens, so it has its name only after that.
  const std::string making = path_ + ".new";
  if (making.size() >= sizeof(sockaddr_un::sun_path)) fail(path_, "bind", ENAMETOOLONG);
  fchmod(fd.get(), 0600);  // before bind, so that the name never has a wider mode
  const sockaddr_un address = address_of(making);
  int tries = 0;
  do {
    if (!is_node_) base::ensure_runtime_dir();
    require_socket_or_nothing(making);
    if (unlink(making.c_str()) != 0 && errno != ENOENT) fail(making, "replace", errno);
    if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0) break;
    // The controller of another session may have removed the empty folder in the meantime.
    if (errno != ENOENT || ++tries == kBindTries) fail(path_, "bind", errno);
  } while (true);
  try {
    lstat(making.c_str(), &bound_);
    // Whatever the umask. Nobody else may write to the folder, so the name is still ours.
    if (is_node_) chmod(making.c_str(), kNodeMode);
    if (listen(fd.get(), kAcceptQueue) != 0) fail(path_, "listen on", errno);
    require_socket_or_nothing(path_);
    if (rename(making.c_str(), path_.c_str()) != 0) fail(path_, "replace", errno);
  } catch (const std::runtime_error&) {
    unlink(making.c_str());
    throw;
  }
  return fd;
}

base::Fd Listener::restore() {
  struct stat now {};
  const bool gone = lstat(path_.c_str(), &now) != 0;
  if (!gone && now.st_ino == bound_.st_ino && now.st_dev == bound_.st_dev) return {};
  const bool first = !std::exchange(said_, true);
  if (!gone) {
    if (first) spdlog::error("the socket {} is another's now: new programs ask there", path_);
    return {};
  }
  try {
    base::Fd before = std::exchange(fd_, listen_at_name());
    spdlog::warn("the socket {} was gone; made again", path_);
    said_ = false;
    return before;
  } catch (const std::exception& error) {
    if (first) spdlog::error("the socket is gone: {}", error.what());
    return {};
  }
}

Listener::~Listener() {
  struct stat now {};
  const bool ours =
      lstat(path_.c_str(), &now) == 0 && now.st_ino == bound_.st_ino && now.st_dev == bound_.st_dev;
  if (ours && !leaves_name_) unlink(path_.c_str());
  if (!is_node_) base::remove_runtime_dir_if_empty();
}

}  // namespace sluice::controller
