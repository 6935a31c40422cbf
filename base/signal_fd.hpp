#pragma once
#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <initializer_list>
#include <string>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace sluice::base {

/// Signals as a descriptor for poll(). The constructor blocks the signals in this thread, so create
/// the object before any thread that must not receive them. start_child() unblocks all signals in
/// the child.
class SignalFd {
 public:
  struct Received {
    int signal = 0;  ///< 0: none.
    int sender_pid = 0;
  };

  SignalFd(std::initializer_list<int> signals) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : signals) sigaddset(&set, signal);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    fd_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!fd_) throw RunError(std::string("cannot create a signalfd: ") + std::strerror(errno));
  }

  [[nodiscard]] int fd() const { return fd_.get(); }

  /// The next pending signal. Does not wait.
  [[nodiscard]] Received next() const {
    signalfd_siginfo info{};
    if (read(fd_.get(), &info, sizeof(info)) != sizeof(info)) return {};
    return {static_cast<int>(info.ssi_signo), static_cast<int>(info.ssi_pid)};
  }

 private:
  Fd fd_;
};

}  // namespace sluice::base
