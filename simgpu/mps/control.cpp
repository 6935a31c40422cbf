// sluice-simgpu-mps-control: stands for nvidia-cuda-mps-control on a machine without an NVIDIA
// driver. Its life and its folder are those of NVIDIA's daemon, and programs on the simulated GPU
// join it. There is no MPS server behind it: the simulated GPU's process does its work.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <string>

#include "base/command_line.hpp"
#include "base/error.hpp"
#include "base/signal_fd.hpp"
#include "simgpu/channel/mps_folder.hpp"

namespace sluice::simgpu {
namespace {

constexpr const char* kDefaultFolder = "/tmp/nvidia-mps";
// The texts of NVIDIA's program, which scripts look for.
constexpr const char* kRunning = "An instance of this daemon is already running";
constexpr const char* kNotFound = "Cannot find MPS control daemon process";

MpsFolder folder() { return MpsFolder::of_environment().value_or(MpsFolder(kDefaultFolder)); }

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // NVIDIA's daemon with a longer path ends with this text, too.
  if (path.size() >= sizeof address.sun_path) throw base::RunError(kNotFound);
  path.copy(address.sun_path, path.size());
  return address;
}

// The command that a peer sends as a line; empty if none comes within a second.
std::string receive_line(const base::Fd& peer) {
  constexpr timeval kPatience{1, 0};
  setsockopt(peer.get(), SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  std::string line;
  for (char letter = 0; read(peer.get(), &letter, 1) == 1 && letter != '\n';) line += letter;
  return line;
}

class Daemon {
 public:
  explicit Daemon(MpsFolder folder) : folder_(std::move(folder)) {
    mkdir(folder_.path().c_str(), 0777);
    lock_ = base::Fd(open(folder_.lock().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!lock_) throw base::RunError(folder_.path() + ": " + std::strerror(errno));
    if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) throw base::RunError(kRunning);
    const sockaddr_un address = address_of(folder_.control());
    unlink(folder_.control().c_str());
    listener_ = base::Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const auto* generic = reinterpret_cast<const sockaddr*>(&address);
    if (bind(listener_.get(), generic, sizeof address) != 0 || listen(listener_.get(), 16) != 0) {
      throw base::RunError(folder_.control() + ": " + std::strerror(errno));
    }
  }
  ~Daemon() { unlink(folder_.pid_file().c_str()); }
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  // Until a signal or the command `quit`.
  void run(const base::SignalFd& signals) {
    write_pid();
    for (;;) {
      std::array<pollfd, 2> sources{pollfd{signals.fd(), POLLIN, 0},
                                    pollfd{listener_.get(), POLLIN, 0}};
      if (poll(sources.data(), sources.size(), -1) < 0) continue;
      if (sources[0].revents != 0) return;
      const base::Fd peer(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (peer && !answer(peer)) return;
    }
  }

 private:
  // The name comes with the content: a program that looks meanwhile finds no daemon.
  void write_pid() const {
    const std::string unfinished = folder_.pid_file() + ".new";
    std::ofstream(unfinished) << getpid() << '\n';
    if (rename(unfinished.c_str(), folder_.pid_file().c_str()) != 0) {
      throw base::RunError(folder_.pid_file() + ": " + std::strerror(errno));
    }
  }

  // False after `quit`.
  bool answer(const base::Fd& peer) const {
    const std::string line = receive_line(peer);
    if (line == "quit") {  // the peer hears the end when no pid file is left
      unlink(folder_.pid_file().c_str());
      return false;
    }
    std::string reply;
    if (line == "get_default_active_thread_percentage") {
      const char* percentage = std::getenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
      reply = percentage == nullptr ? "100.0\n" : percentage + std::string("\n");
    }
    [[maybe_unused]] const ssize_t sent =
        send(peer.get(), reply.data(), reply.size(), MSG_NOSIGNAL);
    return true;
  }

  MpsFolder folder_;
  base::Fd lock_;
  base::Fd listener_;
};

int serve() {
  const base::SignalFd signals{SIGTERM, SIGINT, SIGHUP};
  Daemon(folder()).run(signals);
  return base::kExitFine;
}

// Sends one command to the daemon and prints the reply.
void send_command(const std::string& command) {
  const sockaddr_un address = address_of(folder().control());
  const base::Fd peer(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  if (connect(peer.get(), generic, sizeof address) != 0) throw base::RunError(kNotFound);
  const std::string line = command + '\n';
  if (send(peer.get(), line.data(), line.size(), MSG_NOSIGNAL) < 0) {
    throw base::RunError(kNotFound);
  }
  std::array<char, 256> reply{};
  for (ssize_t got = 0; (got = read(peer.get(), reply.data(), reply.size())) > 0;) {
    std::fwrite(reply.data(), 1, static_cast<std::size_t>(got), stdout);
  }
}

int pass_commands_on() {
  for (std::string line; std::getline(std::cin, line);) send_command(line);
  return base::kExitFine;
}

int control(int argc, char** argv) {
  CLI::App app("Stand for nvidia-cuda-mps-control on a machine without an NVIDIA driver",
               "sluice-simgpu-mps-control");
  bool foreground = false;
  app.add_flag("-f", foreground, "Run the daemon in the foreground");
  app.footer(
      "Without -f, it passes the lines of standard input on to the daemon, such as `quit`.\n"
      "The daemon's folder is CUDA_MPS_PIPE_DIRECTORY.\n\nExample:\n"
      "  CUDA_MPS_PIPE_DIRECTORY=/tmp/pipes sluice-simgpu-mps-control -f");
  if (const auto exit_code = base::parse(app, argc, argv)) return *exit_code;
  return foreground ? serve() : pass_commands_on();
}

}  // namespace
}  // namespace sluice::simgpu

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice-simgpu-mps-control",
                                   [&] { return sluice::simgpu::control(argc, argv); });
}
