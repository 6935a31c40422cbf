#pragma once
#include <sys/types.h>

#include <optional>

#include "tests/support/eventually.hpp"

namespace sluice::test {

/// A child process. It is killed and reaped with the object if it has not ended.
class Child {
 public:
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] bool ended() const { return exit_code_.has_value(); }
  void signal(int number) const;
  /// Sends SIGSTOP and waits until the child has stopped.
  void stop() const;
  /// Whether its first thread sleeps in the kernel. A child that has said that it is about to wait,
  /// and then sleeps, does wait.
  [[nodiscard]] bool sleeps() const;
  /// The exit code, or 128 + signal. Kills a child that does not end within `patience`.
  int wait(std::chrono::milliseconds patience = kPatience);

 protected:
  /// `pid`: what fork() returned. Throws if that is an error, because kill(-1) reaches everybody.
  explicit Child(pid_t pid);
  ~Child();
  /// Whether the child has ended. Does not wait.
  bool reap();

 private:
  pid_t pid_;
  std::optional<int> exit_code_;
};

}  // namespace sluice::test
