#pragma once
#include <absl/synchronization/mutex.h>

namespace sluice::server {

/// Debian builds Abseil without NDEBUG, and then each of gRPC's locks is looked up in a graph of
/// all locks, which finds deadlocks. For servers and for clients whose time is measured.
inline void switch_off_lock_graph() {
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
}

}  // namespace sluice::server
