#pragma once
#include <atomic>
#include <cstdint>

namespace sluice::intercept {

class Interposer;
class Trace;

/// What every part of the library needs to know about this process. Constant-initialised: valid
/// before any constructor has run and after every destructor.
struct Process {
  /// What threads remember about streams (launch.hpp) becomes invalid when this changes: a job
  /// ended, a stream or context was destroyed, a capture began, the policy changed. It starts at 1,
  /// so version 0 is never valid.
  std::atomic<std::uint64_t> version{1};
  /// Nothing of ours may run in a forked child: threads that do not exist there may have held our
  /// locks at the fork, and the slot is the parent's.
  std::atomic<bool> forked_child{false};
  /// Set at exit. From then on we make no driver calls of our own, because the driver is being torn
  /// down.
  std::atomic<bool> leaving{false};
  /// Set by the first explicit begin or announcement. From then on jobs are what the program says.
  std::atomic<bool> explicit_jobs{false};
  /// Set by the first announcement. From then on no job of this process is predicted.
  std::atomic<bool> announced_jobs{false};
  /// Null unless this process is traced.
  std::atomic<Trace*> trace{nullptr};
  /// Null until the first driver call that needs it; never destroyed.
  std::atomic<Interposer*> interposer{nullptr};

  void forget_remembered() noexcept { version.fetch_add(1); }
};

extern constinit Process g_process;

inline bool in_forked_child() noexcept {
  return g_process.forked_child.load(std::memory_order_relaxed);
}

}  // namespace sluice::intercept
