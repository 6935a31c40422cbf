#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/child.hpp"

namespace sluice::controller {

/// A trial of a device: a process group whose leader prints the answer (`sluice doctor
/// --only-slices`). Used by one thread, which must live as long as the trial.
class SliceTrial {
 public:
  /// Throws RunError if no process can be started.
  explicit SliceTrial(const std::vector<std::string>& command);
  ~SliceTrial() { end(); }
  SliceTrial(const SliceTrial&) = delete;
  SliceTrial& operator=(const SliceTrial&) = delete;

  [[nodiscard]] pid_t group() const noexcept { return pid_; }
  /// Whether the leader has printed and ended. Does not wait.
  [[nodiscard]] bool ended() const noexcept;
  /// What the leader has printed.
  [[nodiscard]] std::string printed() const;
  /// Kills the whole group, and reaps its leader.
  void end() noexcept;

 private:
  base::Pipe out_;
  pid_t pid_ = -1;
};

}  // namespace sluice::controller
