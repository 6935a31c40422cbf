// What a test sees of a GPU process from outside.
#pragma once
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include <cstring>
#include <string>

#include "base/fd.hpp"

namespace sluice::simgpu::test {

/// A connection to the GPU process that answers at the path. Empty if none does.
inline base::Fd connect_to(const std::string& path) {
  base::Fd connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (connect(connection.get(), generic, sizeof address) != 0) connection = base::Fd();
  return connection;
}

/// The pid of the GPU process that answers at the path; 0 if none does.
inline pid_t pid_behind(const std::string& path) {
  const base::Fd connection = connect_to(path);
  ucred peer{};
  socklen_t size = sizeof peer;
  if (connection) getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
  return peer.pid;
}

}  // namespace sluice::simgpu::test
