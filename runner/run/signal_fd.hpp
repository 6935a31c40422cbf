#pragma once
#include <sys/signalfd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <initializer_list>
#include <string>

#include "runner/config_error.hpp"
#include "runner/run/fd.hpp"

namespace sluice::runner {

/// Signals as something to poll: from here on they are blocked in this thread, and in threads and
/// children (start_child() unblocks them there) made after.
class SignalFd {
 public:
  SignalFd(std::initializer_list<int> signals) {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : signals) sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    fd_ = Fd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
    if (fd_.get() < 0) throw RunError(std::string("no signalfd: ") + std::strerror(errno));
  }

  [[nodiscard]] int fd() const { return fd_.get(); }
  /// The next signal that came, or 0.
  [[nodiscard]] int next() const {
    signalfd_siginfo info{};
    return read(fd_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo)
                                                                : 0;
  }

 private:
  Fd fd_;
};

}  // namespace sluice::runner
