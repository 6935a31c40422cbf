// Packets with at most one file descriptor, over a unix socket.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/fd.hpp"

namespace sluice::simgpu {

// Sends one packet, with the descriptor `fd` unless that is -1. Returns false if the peer is gone.
template <typename T>
bool send_packet(int socket, const T& packet, int fd = -1) {
  iovec data{const_cast<T*>(&packet), sizeof packet};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  ssize_t sent = -1;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(sizeof packet);
}

// Receives one packet. Returns 1; 0 if there is no packet yet (non-blocking socket or receive
// timeout); -1 if the peer is gone or sent a packet of another size.
template <typename T>
int receive_packet(int socket, T& packet, base::Fd& fd) {
  iovec data{&packet, sizeof packet};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t received = -1;
  do {
    received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -1;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int raw = -1;
    std::memcpy(&raw, CMSG_DATA(header), sizeof raw);
    fd = base::Fd(raw);
  }
  return received == static_cast<ssize_t>(sizeof packet) ? 1 : -1;
}

}  // namespace sluice::simgpu
