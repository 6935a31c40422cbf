#pragma once
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

namespace sluice::tools {

/// What ends a live view, as something to poll: so the terminal is restored by destructors, in
/// whatever way the view is ended. Blocks the signals for the rest of the process.
class EndSignals {
 public:
  EndSignals() {
    sigset_t set;
    sigemptyset(&set);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) sigaddset(&set, signal);
    sigprocmask(SIG_BLOCK, &set, nullptr);
    fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  }
  ~EndSignals() { close(fd_); }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  [[nodiscard]] int fd() const { return fd_; }

 private:
  int fd_;
};

}  // namespace sluice::tools
