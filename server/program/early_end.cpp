#include "server/program/early_end.hpp"

#include <poll.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>

#include "base/error.hpp"

namespace sluice::server {

EarlyEnd::EarlyEnd(const base::SignalFd& signals) : thread_([this, &signals] { wait(signals); }) {}

EarlyEnd::~EarlyEnd() {
  eventfd_write(over_.get(), 1);
  thread_.join();
}

void EarlyEnd::wait(const base::SignalFd& signals) const {
  std::array<pollfd, 2> fds{pollfd{over_.get(), POLLIN, 0}, pollfd{signals.fd(), POLLIN, 0}};
  for (;;) {
    if (poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds[0].revents != 0) return;
    const int signal = signals.next().signal;
    if (signal == 0 || signal == SIGHUP) continue;  // There is nothing to read again.
    std::fprintf(stderr, "sluice serve: ended while it starts\n");
    std::fflush(nullptr);
    _exit(base::kExitFine);
  }
}

}  // namespace sluice::server
