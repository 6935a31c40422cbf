#include "simgpu/driver/start_gpu.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "simgpu/channel/runtime_dir.hpp"

extern char** environ;

namespace sluice::simgpu {
namespace {

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  return address;
}

base::Fd connect_to(const std::string& path) {
  base::Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const sockaddr_un address = address_of(path);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (!socket || connect(socket.get(), generic, sizeof address) != 0) return {};
  return socket;
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

// The preload and the library path are for the client: the GPU process must not gate itself.
std::vector<char*> clean_environment() {
  std::vector<char*> kept;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const bool dropped = std::strncmp(*variable, "LD_PRELOAD=", 11) == 0 ||
                         std::strncmp(*variable, "LD_LIBRARY_PATH=", 16) == 0;
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

// The starter creates the socket and passes it on. So other clients can connect at once, and none
// waits for the new process.
bool start(const std::string& path) {
  unlink(path.c_str());  // left by a killed GPU process
  const base::Fd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  const sockaddr_un address = address_of(path);
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (!listener || bind(listener.get(), generic, sizeof address) != 0) return false;
  if (listen(listener.get(), 128) == 0 && spawn(program_path(), path, listener.get())) return true;
  unlink(path.c_str());
  return false;
}

}  // namespace

base::Fd connect_to_gpu() {
  const std::string path = socket_path();
  if (path.empty()) return {};
  if (base::Fd socket = connect_to(path)) return socket;
  const base::Fd lock = lock_runtime_dir();
  if (!lock) return {};
  if (base::Fd socket = connect_to(path)) return socket;
  if (!start(path)) return {};
  return connect_to(path);
}

}  // namespace sluice::simgpu
