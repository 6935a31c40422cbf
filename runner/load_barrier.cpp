#include "runner/load_barrier.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"

namespace sluice::runner {
namespace {

constexpr std::array<char, 5> kReady{'r', 'e', 'a', 'd', 'y'};

}  // namespace

std::uint64_t WorkerBarrier::wait_for_start() const {
  std::uint64_t start = 0;
  ssize_t got = send(fd_, kReady.data(), kReady.size(), MSG_NOSIGNAL);
  while (got > 0) {
    got = recv(fd_, &start, sizeof(start), 0);
    if (got == static_cast<ssize_t>(sizeof(start))) return start;
    if (got < 0 && errno == EINTR) got = 1;
  }
  throw base::RunError("the runner is gone");
}

bool worker_is_ready(int fd) {
  std::array<char, 8> word{};
  const ssize_t got = recv(fd, word.data(), word.size(), MSG_DONTWAIT);
  return got == static_cast<ssize_t>(kReady.size()) &&
         std::memcmp(word.data(), kReady.data(), kReady.size()) == 0;
}

void release_worker(int fd, std::uint64_t start_monotonic_ns) {
  const ssize_t ignored =
      send(fd, &start_monotonic_ns, sizeof(start_monotonic_ns), MSG_NOSIGNAL | MSG_DONTWAIT);
  static_cast<void>(ignored);
}

}  // namespace sluice::runner
