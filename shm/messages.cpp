#include "shm/messages.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "base/clock.hpp"
#include "base/fd.hpp"
#include "base/node_service.hpp"

namespace sluice::shm {
namespace {

/// The only user who may be at the other end. Another user may have created the folder before us.
std::optional<uid_t> expected_peer(const char* socket_path) noexcept {
  if (base::is_node_socket(socket_path)) return base::trusted_node_owner(socket_path);
  return geteuid();
}

/// Waits until the connection has something to read. Returns 0 or -errno.
int wait_for_reply(int fd, int timeout_ms) noexcept {
  const std::uint64_t deadline =
      base::monotonic_ns() + static_cast<std::uint64_t>(timeout_ms) * 1'000'000U;
  pollfd wait{fd, POLLIN, 0};
  for (;;) {
    const std::uint64_t now = base::monotonic_ns();
    const std::uint64_t left_ms = now < deadline ? (deadline - now + 999'999U) / 1'000'000U : 0;
    const int ready = poll(&wait, 1, static_cast<int>(left_ms));
    if (ready > 0) return 0;
    if (ready == 0) return -ETIMEDOUT;
    if (errno != EINTR) return -errno;  // a signal for the program is no reason to give up
  }
}

/// Checks the size of a received reply, and makes its text printable. Returns 0 or -errno.
int check_reply(ssize_t size, Reply& reply) noexcept {
  if (size < 0) return -errno;
  if (size != sizeof(reply)) return -EPIPE;
  reply.text.back() = '\0';
  for (char& c : reply.text) {
    const bool printable = c == '\0' || (c >= ' ' && c != '\x7f');
    if (!printable) c = '?';
  }
  return 0;
}

/// The first descriptor that came with a message, or -1. Closes any other.
int take_descriptor(msghdr& message) noexcept {
  int taken = -1;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      if (taken < 0) {
        taken = fd;
      } else {
        close(fd);
      }
    }
  }
  return taken;
}

/// As receive(), with a descriptor that came with the reply, or -1.
int receive_with_descriptor(int fd, Reply& reply, int& descriptor) noexcept {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  iovec bytes{&reply, sizeof(reply)};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const base::StandardFiles taken;  // or a program's messages would go to the board
  const ssize_t size = recvmsg(fd, &message, MSG_DONTWAIT | MSG_TRUNC | MSG_CMSG_CLOEXEC);
  const int error = check_reply(size, reply);
  descriptor = size < 0 ? -1 : take_descriptor(message);
  return error;
}

}  // namespace

int connect_controller(const char* socket_path) noexcept {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (std::strlen(socket_path) >= sizeof(address.sun_path)) return -ENAMETOOLONG;
  if (*socket_path == '\0') return -ENOENT;  // an empty name would be an abstract socket
  const std::optional<uid_t> expected = expected_peer(socket_path);
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
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.uid != expected) {
    close(fd);
    return -EPERM;
  }
  return fd;
}

int connect_patiently(const char* socket_path, int most_ms) noexcept {
  constexpr timespec kPause{0, 1'000'000};
  const std::uint64_t deadline =
      base::monotonic_ns() + static_cast<std::uint64_t>(most_ms) * 1'000'000U;
  for (;;) {
    const int fd = connect_controller(socket_path);
    if (fd != -EAGAIN || base::monotonic_ns() >= deadline) return fd;
    nanosleep(&kPause, nullptr);
  }
}

int tell(int fd, const Request& request) noexcept {
  return send(fd, &request, sizeof(request), MSG_NOSIGNAL) == sizeof(request) ? 0 : -errno;
}

int tell(int fd, const Report& report) noexcept {
  return send(fd, &report, sizeof(report), MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(report) ? 0
                                                                                          : -errno;
}

int receive(int fd, Reply& reply) noexcept {
  // MSG_TRUNC returns the true size, so that a longer reply is not mistaken for a Reply.
  return check_reply(recv(fd, &reply, sizeof(reply), MSG_TRUNC | MSG_DONTWAIT), reply);
}

int ask(int fd, const Request& request, Reply& reply, int timeout_ms) noexcept {
  if (const int error = tell(fd, request); error != 0) return error;
  if (const int error = wait_for_reply(fd, timeout_ms); error != 0) return error;
  return receive(fd, reply);
}

int ask_for_board(int fd, RequestKind kind, Reply& reply, int timeout_ms) noexcept {
  Request request;
  request.kind = kind;
  if (const int error = tell(fd, request); error != 0) return error;
  if (const int error = wait_for_reply(fd, timeout_ms); error != 0) return error;
  int descriptor = -1;
  const int error = receive_with_descriptor(fd, reply, descriptor);
  if (error == 0 && reply.status == ReplyStatus::kOk && descriptor >= 0) return descriptor;
  if (descriptor >= 0) close(descriptor);
  return error != 0 ? error : -EACCES;
}

}  // namespace sluice::shm
