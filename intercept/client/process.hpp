#pragma once
#include <atomic>
#include <cstdint>

namespace sluice::intercept {

class Interposer;
class Trace;

/// What every part of the library asks about this process, in one constant-initialised place: it
/// is valid before any constructor has run and after every destructor.
struct Process {
  /// What threads remember about streams (launch.hpp) is void once this changes: a job ended, a
  /// stream or context was destroyed, a capture began, the policy changed. Starts at 1, so that a
  /// thread that remembers nothing has version 0.
  std::atomic<std::uint64_t> version{1};
  /// In a forked child nothing of ours may run: threads that do not exist any more may have held
  /// the locks at the fork, and the slot is the parent's.
  std::atomic<bool> forked_child{false};
  /// Set at exit: nothing of ours calls the driver any more, which is being taken down.
  std::atomic<bool> leaving{false};
  /// Set by the first explicit begin of a job: from then on jobs are what the program says.
  std::atomic<bool> explicit_jobs{false};
  /// Set by the first announcement: from then on no job of this process is predicted.
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
