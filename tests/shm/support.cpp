#include "tests/shm/support.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <new>
#include <stdexcept>
#include <thread>

#include "shm/session.hpp"

namespace sluice::shm::test {

Child::Child(const std::function<int()>& body) : pid_(fork()) {
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    int result = 99;
    try {
      result = body();
    } catch (const std::exception&) {
    }
    _exit(result);
  }
}

Child::~Child() {
  if (reaped_) return;
  kill();
  wait();
}

void Child::kill() { ::kill(pid_, SIGKILL); }

int Child::wait() {
  int status = 0;
  if (reaped_ || waitpid(pid_, &status, 0) != pid_) return -1;
  reaped_ = true;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Signal::Signal() : fd_(eventfd(0, EFD_CLOEXEC)) {
  if (fd_ < 0) throw std::runtime_error("no eventfd");
}
Signal::~Signal() { close(fd_); }

void Signal::raise() const { eventfd_write(fd_, 1); }

bool Signal::wait() const {
  pollfd ready{fd_, POLLIN, 0};
  if (poll(&ready, 1, 10'000) != 1) return false;
  eventfd_t value = 0;
  return eventfd_read(fd_, &value) == 0;
}

void* map_shared(std::size_t size) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

void unmap_shared(void* memory, std::size_t size) { munmap(memory, size); }

Session::Session() {
  static int count = 0;
  name_ = "shmtest-" + std::to_string(getpid()) + "-" + std::to_string(++count);
}
Session::~Session() { unlink(board_path().c_str()); }
std::string Session::board_path() const { return "/dev/shm/" + board_name(name_); }
bool Session::has_board() const { return access(board_path().c_str(), F_OK) == 0; }

bool eventually(const std::function<bool()>& condition) {
  using namespace std::chrono_literals;
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(1ms);
  }
  return true;
}

}  // namespace sluice::shm::test
