#include "simgpu/driver/start_gpu.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "simgpu/channel/place.hpp"

extern char** environ;

namespace sluice::simgpu {
namespace {

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  return address;
}

// The socket is empty if nobody answers. Then errno says why.
base::Fd connect_to(const std::string& path) {
  base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const sockaddr_un address = address_of(path);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (!socket || connect(socket.get(), generic, sizeof address) != 0) {
    const int why = errno;
    socket = base::Fd();
    errno = why;
  }
  return socket;
}

base::Fd connect_to_one_of(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (base::Fd socket = connect_to(path)) return socket;
  }
  return {};
}

// Under the lock: nobody starts a GPU process meanwhile, so a socket that refuses was left by a
// killed one. The system keeps the files of other users in a shared folder; they do no harm there.
base::Fd connect_or_clean_up(const Place& place) {
  for (const std::string& path : place.sockets()) {
    if (base::Fd socket = connect_to(path)) return socket;
    if (errno == ECONNREFUSED) unlink(path.c_str());
  }
  place.remove_unfinished();
  return {};
}

// lib/sluice/simgpu/libcuda.so.1 → libexec/sluice/sluice-simgpu
std::string program_path() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&connect_to_gpu), &info) == 0) return {};
  std::string path(info.dli_fname);
  const std::size_t slash = path.rfind('/');
  path = slash == std::string::npos ? "." : path.substr(0, slash);
  return path + "/../../../libexec/sluice/sluice-simgpu";
}

// The preload and the library path are for the client: the GPU process must not gate itself. Nor
// must it look like a client of an MPS daemon, which may live shorter.
std::vector<char*> clean_environment() {
  constexpr std::array<std::string_view, 3> kDropped{
      "LD_PRELOAD=", "LD_LIBRARY_PATH=", "CUDA_MPS_"};
  std::vector<char*> kept;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const bool dropped = std::any_of(kDropped.begin(), kDropped.end(), [&](std::string_view start) {
      return std::string_view(*variable).starts_with(start);
    });
    if (!dropped) kept.push_back(*variable);
  }
  kept.push_back(nullptr);
  return kept;
}

// posix_spawn() instead of fork(): it runs no fork handlers of the application, and its cost does
// not grow with the application's memory. The GPU process becomes a daemon, and the child ends at
// once.
bool spawn(const std::string& program, const std::string& socket_name, int listener) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, listener, 3);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&files, 4);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::string name = "sluice-simgpu";
  std::string path = socket_name;
  char* arguments[] = {name.data(), path.data(), nullptr};
  pid_t child = -1;
  const int failed = posix_spawn(&child, program.c_str(), &files, &attributes, arguments,
                                 clean_environment().data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) return false;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return true;
}

// A listening socket at `path`. It gets this name when it is finished: a socket that other users
// find must let them in.
base::Fd listen_at(const std::string& path, bool for_all_users) {
  const std::string unfinished = path + kUnfinished;
  base::Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const sockaddr_un address = address_of(unfinished);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (!listener || bind(listener.get(), generic, sizeof address) != 0) return {};
  const bool open = !for_all_users || chmod(unfinished.c_str(), 0666) == 0;
  if (open && listen(listener.get(), 128) == 0 && rename(unfinished.c_str(), path.c_str()) == 0) {
    return listener;
  }
  unlink(unfinished.c_str());
  return {};
}

// The starter creates the socket and passes it on. So other clients can connect at once, and none
// waits for the new process.
base::Fd start(const Place& place) {
  const std::string path = place.new_socket();
  const base::Fd listener = listen_at(path, place.is_shared());
  if (!listener) return {};
  if (spawn(program_path(), path, listener.get())) return connect_to(path);
  unlink(path.c_str());
  return {};
}

}  // namespace

base::Fd connect_to_gpu() {
  const Place place = Place::of_environment();
  if (!place.fault().empty()) return {};
  if (base::Fd socket = connect_to_one_of(place.sockets())) return socket;
  const base::Fd lock = place.lock();
  if (!lock) return {};
  if (base::Fd socket = connect_or_clean_up(place)) return socket;
  return start(place);
}

}  // namespace sluice::simgpu
