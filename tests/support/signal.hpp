#pragma once
#include <poll.h>
#include <sys/eventfd.h>

#include "base/fd.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::test {

/// A signal from one process to another, forked one. Each raise() ends one wait().
class Signal {
 public:
  void raise() const { eventfd_write(fd_.get(), 1); }
  /// False if nobody raises the signal within kPatience.
  [[nodiscard]] bool wait() const {
    pollfd ready{fd_.get(), POLLIN, 0};
    eventfd_t value = 0;
    return poll(&ready, 1, static_cast<int>(kPatience.count())) == 1 &&
           eventfd_read(fd_.get(), &value) == 0;
  }

 private:
  base::Fd fd_{eventfd(0, EFD_CLOEXEC)};
};

}  // namespace sluice::test
