#pragma once
#include <sys/eventfd.h>

#include <thread>

#include "base/fd.hpp"
#include "base/signal_fd.hpp"

namespace sluice::server {

/// While it lives, SIGINT and SIGTERM end the process at once: a server that starts may wait for a
/// file, such as a pipe that nobody writes, before it looks at its signals.
class EarlyEnd {
 public:
  explicit EarlyEnd(const base::SignalFd& signals);
  EarlyEnd(const EarlyEnd&) = delete;
  EarlyEnd& operator=(const EarlyEnd&) = delete;
  ~EarlyEnd();

 private:
  void wait(const base::SignalFd& signals) const;

  base::Fd over_{eventfd(0, EFD_CLOEXEC)};
  std::thread thread_;
};

}  // namespace sluice::server
