#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "base/error.hpp"
#include "base/fd.hpp"

namespace sluice::base {

/// A pipe. Both ends are closed on exec. Throws RunError if there is none to be had.
struct Pipe {
  Fd read;
  Fd write;
  Pipe() {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) {
      throw RunError(std::string("no pipe: ") + std::strerror(errno));
    }
    read = Fd(ends[0]);
    write = Fd(ends[1]);
  }
};

}  // namespace sluice::base
