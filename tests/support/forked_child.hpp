#pragma once
#include <sys/resource.h>
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

/// For a child: from now on it can start no thread. False if the system refuses that.
[[nodiscard]] inline bool give_up_threads() {
  constexpr rlimit kNone{0, 0};
  constexpr uid_t kNotRoot = 65533;  // the limit is not for root
  return (geteuid() != 0 || setresuid(kNotRoot, kNotRoot, kNotRoot) == 0) &&
         setrlimit(RLIMIT_NPROC, &kNone) == 0;
}

}  // namespace sluice::test
