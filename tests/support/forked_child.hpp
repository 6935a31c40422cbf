#pragma once
#include <unistd.h>

#include <exception>

#include "tests/support/child.hpp"

namespace sluice::test {

/// A forked child that runs `body` and exits with its result, or with 99 if it throws.
class ForkedChild : public Child {
 public:
  template <class Body>
  explicit ForkedChild(const Body& body) : Child(fork()) {
    if (pid() != 0) return;
    int result = 99;
    try {
      result = body();
    } catch (const std::exception&) {
    }
    _exit(result);
  }
};

}  // namespace sluice::test
