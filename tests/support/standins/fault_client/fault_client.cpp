// fault_client PROGRESS_FILE: a program on the GPU that obeys the lines of stdin and answers each
// with one line that begins with `ok`. It knows nothing of Sluice but the C API.
// fault_client idle: a program without a GPU, which the first one becomes by exec.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>

#include "base/clock.hpp"
#include "sluice/sluice.h"
#include "workers.hpp"

namespace sluice::test {
namespace {

void answer(const std::string& text = {}) {
  std::printf("ok %s\n", text.c_str());
  std::fflush(stdout);
}

std::string now() { return std::to_string(base::monotonic_ns()); }

class Commands {
 public:
  Commands(Gpu& gpu, const char* program) : gpu_(gpu), program_(program), workers_(gpu) {
    stream_ = Gpu::new_stream();
  }

  void run() {
    std::string line;
    while (std::getline(std::cin, line)) obey(line);
  }

 private:
  void obey(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    std::uint64_t c = 0;
    words >> command >> a >> b >> c;
    if (command == "attach") return attach();
    if (command == "touch") return touch(a);
    if (command == "begin") return begin();
    if (command == "end") return end(a);
    if (command == "launch") return launch(a, b);
    if (command == "sync") return synchronise();
    if (command == "job") return job(a, b);
    if (command == "hold") return hold();
    if (command == "own-later-launch") return wait_for_own_later_launch(a);
    if (command == "loop") return workers_.start_loops(a, b, c), answer();
    if (command == "graph") return workers_.start_graph(a, b, c), answer();
    if (command == "mix") return workers_.start_mix(a, b), answer();
    if (command == "jobs") return workers_.start_jobs(a, b), answer();
    if (command == "train") return workers_.start_training(a, b), answer();
    if (command == "halt") return workers_.stop(), answer();
    if (command == "fork") return fork_child(line.substr(line.find(' ') + 1));
    if (command == "exec") execl(program_, program_, "idle", nullptr);
    if (command == "exit") std::exit(0);  // while threads are in the driver
    std::printf("error unknown command %s\n", command.c_str());
    std::fflush(stdout);
  }

  /// Makes a first launch, so that the process gets its slot. Answers whether it has one.
  void attach() {
    check(gpu_.launch(stream_, 1), "cuLaunchKernel");
    check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
    answer(std::to_string(sluice_attached()));
  }

  void touch(std::uint64_t mib) {
    const std::size_t bytes = mib << 20U;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    std::memset(memory, 1, bytes);
    answer();
  }

  void begin() {
    const std::uint64_t id = sluice_job_begin(0);
    answer(std::to_string(id) + " " + now());
  }

  void end(std::uint64_t id) {
    const std::string before = now();
    sluice_job_end(id);
    answer(before);
  }

  void launch(std::uint64_t count, std::uint64_t us) {
    for (std::uint64_t i = 0; i < count; ++i) check(gpu_.launch(stream_, us), "cuLaunchKernel");
    answer();
  }

  void synchronise() {
    check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
    answer();
  }

  /// Does a whole explicit job. Answers when it had begun, and when it was about to end.
  void job(std::uint64_t count, std::uint64_t us) {
    const std::uint64_t id = sluice_job_begin(0);
    const std::string begun = now();
    for (std::uint64_t i = 0; i < count; ++i) check(gpu_.launch(stream_, us), "cuLaunchKernel");
    check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
    const std::string ending = now();
    sluice_job_end(id);
    answer(begun + " " + ending);
  }

  /// Launches from here on wait on the GPU until the test sets Progress::release.
  void hold() {
    gpu_.hold(stream_);
    answer();
  }

  /// Stops the stream until the program itself sets a word, after `count` more launches. Anything
  /// that waits for the end of one of these launches waits indefinitely.
  void wait_for_own_later_launch(std::uint64_t count) {
    const std::uint64_t start = base::monotonic_ns();
    gpu_.progress().release.store(0);
    gpu_.hold(stream_);
    for (std::uint64_t i = 0; i < count; ++i) check(gpu_.launch(stream_, 10), "cuLaunchKernel");
    gpu_.progress().release.store(1);
    check(cuStreamSynchronize(stream_), "cuStreamSynchronize");
    answer(std::to_string((base::monotonic_ns() - start) / 1'000'000));
  }

  /// Forks without exec. Answers with the pid of the child and, unless it stays, its wait status.
  void fork_child(const std::string& what) {
    const bool attached = sluice_attached() != 0;
    const pid_t child = fork();
    if (child == 0) be_child(what, attached);
    int status = -1;
    if (what != "stay") waitpid(child, &status, 0);
    answer(std::to_string(child) + " " + std::to_string(status));
  }

  /// `attached`: the parent was, at the fork. Else the child is a program of its own.
  [[noreturn]] void be_child(const std::string& what, bool attached) {
    alarm(20);  // ends a child that hangs, which its status then shows
    if (what == "exit") std::exit(0);
    if (what == "stay") {
      close(STDOUT_FILENO);
      pause();
    }
    if (what == "launch") {
      // CUDA does not work in a forked child: the driver's refusal must reach the program.
      const std::uint64_t id = sluice_job_begin(0);
      const bool refused = gpu_.launch(stream_, 10) != CUDA_SUCCESS;
      sluice_job_end(id);
      const bool knows = id == 0 && sluice_attached() == 0;
      _exit(refused && (knows || !attached) ? 0 : 1);
    }
    _exit(2);
  }

  Gpu& gpu_;
  const char* program_;
  Workers workers_;
  CUstream stream_ = nullptr;
};

int idle() {
  answer();
  char c = 0;
  while (read(STDIN_FILENO, &c, 1) == 1) {
  }
  return 0;
}

}  // namespace
}  // namespace sluice::test

int main(int argc, char** argv) {
  using namespace sluice::test;
  if (argc != 2) {
    std::fputs("usage: fault_client PROGRESS_FILE | idle\n", stderr);
    return 2;
  }
  if (std::strcmp(argv[1], "idle") == 0) return idle();
  Gpu gpu(argv[1]);
  Commands commands(gpu, argv[0]);
  answer();
  commands.run();
  std::exit(0);  // the test is gone, and the threads may never leave the driver
}
