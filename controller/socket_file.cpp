#include "controller/socket_file.hpp"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace sluice::controller {
namespace {

[[noreturn]] void fail(const std::string& path, const std::string& why) {
  throw std::runtime_error("cannot serve metrics on " + path + ": " + why +
                           "; choose another --metrics");
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

base::Fd new_socket() {
  return base::Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

/// Only a refused connection proves that nobody listens: a busy server refuses none.
void remove_stale(const std::string& path) {
  struct stat found {};
  if (lstat(path.c_str(), &found) != 0) return;
  if (!S_ISSOCK(found.st_mode)) fail(path, "it is not a socket");
  const sockaddr_un address = address_of(path);
  const base::Fd probe = new_socket();
  const int result =
      connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
  if (result == 0 || errno != ECONNREFUSED) fail(path, "another process uses it");
  if (unlink(path.c_str()) != 0) fail(path, std::strerror(errno));
}

}  // namespace

SocketFile::SocketFile(std::string path) : path_(std::move(path)), fd_(new_socket()) {
  remove_stale(path_);
  // Before bind, so that the name never has a wider mode. A umask would be the whole process's.
  if (!fd_ || fchmod(fd_.get(), 0600) != 0) fail(path_, std::strerror(errno));
  const sockaddr_un address = address_of(path_);
  if (bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 ||
      lstat(path_.c_str(), &bound_) != 0) {
    fail(path_, std::strerror(errno));
  }
  if (listen(fd_.get(), SOMAXCONN) == 0) return;
  const int error = errno;
  unlink(path_.c_str());
  fail(path_, std::strerror(error));
}

SocketFile::~SocketFile() {
  struct stat now {};
  const bool ours =
      lstat(path_.c_str(), &now) == 0 && now.st_ino == bound_.st_ino && now.st_dev == bound_.st_dev;
  if (ours) unlink(path_.c_str());
}

}  // namespace sluice::controller
