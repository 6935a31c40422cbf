#include "shm/messages.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/clock.hpp"
#include "base/standard_files.hpp"

namespace sluice::shm {

int connect_controller(const char* socket_path) noexcept {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (std::strlen(socket_path) >= sizeof(address.sun_path)) return -ENAMETOOLONG;
  std::strcpy(address.sun_path, socket_path);
  const base::StandardFiles taken;
  // Non-blocking: a stopped controller must not block the process that connects.
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -errno;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    const int error = errno;
    close(fd);
    return -error;
  }
  // Another user may have created the runtime folder before us.
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != geteuid()) {
    close(fd);
    return -EPERM;
  }
  return fd;
}

int tell(int fd, const Request& request) noexcept {
  return send(fd, &request, sizeof(request), MSG_NOSIGNAL) == sizeof(request) ? 0 : -errno;
}

int receive(int fd, Reply& reply) noexcept {
  // MSG_TRUNC returns the true size, so that a longer reply is not mistaken for a Reply.
  const ssize_t size = recv(fd, &reply, sizeof(reply), MSG_TRUNC | MSG_DONTWAIT);
  if (size < 0) return -errno;
  if (size != sizeof(reply)) return -EPIPE;
  reply.text.back() = '\0';
  for (char& c : reply.text) {
    const bool printable = c == '\0' || (c >= ' ' && c != '\x7f');
    if (!printable) c = '?';
  }
  return 0;
}

int ask(int fd, const Request& request, Reply& reply, int timeout_ms) noexcept {
  if (const int error = tell(fd, request); error != 0) return error;
  const std::uint64_t deadline =
      base::monotonic_ns() + static_cast<std::uint64_t>(timeout_ms) * 1'000'000U;
  pollfd wait{fd, POLLIN, 0};
  for (;;) {
    const std::uint64_t now = base::monotonic_ns();
    const std::uint64_t left_ms = now < deadline ? (deadline - now + 999'999U) / 1'000'000U : 0;
    const int ready = poll(&wait, 1, static_cast<int>(left_ms));
    if (ready > 0) break;
    if (ready == 0) return -ETIMEDOUT;
    if (errno != EINTR) return -errno;  // a signal for the program is no reason to give up
  }
  return receive(fd, reply);
}

}  // namespace sluice::shm
