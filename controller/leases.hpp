#pragma once
#include <memory>
#include <vector>

#include "controller/process.hpp"

namespace sluice::controller {

/// Processes that need a running controller until they end: `sluice run`, and `sluice exec` before
/// it becomes the program. Used only with --exit-when-idle. A lease belongs to the process, because
/// the process may close its connection at once.
class Leases {
 public:
  /// Returns false if there are too many leases.
  bool add(std::shared_ptr<const ClientProcess> process);

  /// Drops the leases of processes that have ended.
  void expire();

  [[nodiscard]] std::size_t size() const noexcept { return held_.size(); }

 private:
  std::vector<std::shared_ptr<const ClientProcess>> held_;
};

}  // namespace sluice::controller
