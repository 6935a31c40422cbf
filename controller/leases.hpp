#pragma once
#include <memory>
#include <vector>

#include "controller/process.hpp"

namespace sluice::controller {

/// Processes that want a controller to be there until they have ended: `sluice exec` before it
/// becomes the program, `sluice run`. Matters only under --exit-when-idle. The connection may
/// close at once, so a lease is tied to the process.
class Leases {
 public:
  /// False if there are too many.
  bool add(std::shared_ptr<const Process> process);

  /// Drops those whose process has ended.
  void expire();

  [[nodiscard]] std::size_t size() const noexcept { return held_.size(); }

 private:
  std::vector<std::shared_ptr<const Process>> held_;
};

}  // namespace sluice::controller
