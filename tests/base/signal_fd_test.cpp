#include "base/signal_fd.hpp"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

namespace sluice::base {
namespace {

// Prevents: a program that dies of a signal which it polls for, or blocks in next() without one.
TEST(SignalFd, ReportsEachSignalOnceWithItsSender) {
  const SignalFd signals{SIGTERM, SIGUSR1};
  EXPECT_EQ(signals.next().signal, 0);
  kill(getpid(), SIGUSR1);
  kill(getpid(), SIGTERM);
  pollfd ready{signals.fd(), POLLIN, 0};
  EXPECT_EQ(poll(&ready, 1, 10'000), 1);
  const SignalFd::Received first = signals.next();
  const SignalFd::Received second = signals.next();
  EXPECT_EQ(first.signal + second.signal, SIGUSR1 + SIGTERM);
  EXPECT_EQ(first.sender_pid, getpid());
  EXPECT_EQ(signals.next().signal, 0);
}

}  // namespace
}  // namespace sluice::base
