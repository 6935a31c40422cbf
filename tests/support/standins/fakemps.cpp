// Stands in for nvidia-cuda-mps-control, and for the server that it starts. Which of the two it is,
// the name says by which it was started: link nvidia-cuda-mps-control to it.
//
// It does what programs can see of the real ones: `-f` stays in the foreground, the file `control`
// in the pipe folder appears when clients are accepted, SIGTERM to the daemon ends the server too,
// and SIGKILL of the daemon leaves the server. FAKE_MPS says what is wrong with it:
//   refuse    it ends at once with a line
//   stubborn  daemon and server ignore SIGTERM
//   slow      it takes 300 ms to accept clients
// At an orderly end the daemon makes the file that FAKE_MPS_ENDED names.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

bool is(const char* fault) {
  const char* value = std::getenv("FAKE_MPS");
  return value != nullptr && std::string(value) == fault;
}

sigset_t only_sigterm() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  return set;
}

/// SIGTERM is blocked from the first line of main() on.
void wait_for_end() {
  const sigset_t set = only_sigterm();
  int got = 0;
  do {
    sigwait(&set, &got);
  } while (is("stubborn"));
}

pid_t start_server(const std::string& own) {
  const std::string server = own.substr(0, own.rfind('/') + 1) + "nvidia-cuda-mps-server";
  if (access(server.c_str(), F_OK) != 0 && symlink("/proc/self/exe", server.c_str()) != 0)
    return -1;
  const pid_t pid = fork();
  if (pid == 0) {
    execl(server.c_str(), server.c_str(), static_cast<char*>(nullptr));
    _exit(1);
  }
  return pid;
}

int control(const std::string& own) {
  if (is("refuse")) {
    std::fputs("An instance of this daemon is already running\n", stderr);
    return 1;
  }
  const char* pipes = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  if (pipes == nullptr) return 1;
  const pid_t server = start_server(own);
  if (is("slow")) usleep(300'000);
  const std::string file = std::string(pipes) + "/control";
  const int fd = open(file.c_str(), O_CREAT | O_WRONLY, 0600);
  if (fd >= 0) close(fd);
  wait_for_end();
  unlink(file.c_str());
  kill(server, SIGTERM);
  waitpid(server, nullptr, 0);
  if (const char* ended = std::getenv("FAKE_MPS_ENDED")) {
    close(open(ended, O_CREAT | O_WRONLY, 0600));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const sigset_t set = only_sigterm();
  sigprocmask(SIG_BLOCK, &set, nullptr);
  const std::string own = argv[0];
  if (own.ends_with("server")) {
    wait_for_end();
    return 0;
  }
  return argc > 1 && std::string(argv[1]) == "-f" ? control(own) : 0;
}
