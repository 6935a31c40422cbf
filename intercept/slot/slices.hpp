#pragma once
#include <atomic>
#include <cstdint>

#include "intercept/driver/threads.hpp"
#include "intercept/slot/client_slot.hpp"
#include "intercept/slot/slice_rule.hpp"

namespace sluice::intercept {

/// The time slice of a client. The watcher decides; another thread asks the kernel module, which
/// may be busy with something long.
class Slices {
 public:
  Slices(ClientSlot& client, Worker& setter) noexcept
      : client_(client), setter_(setter), rule_(client.time_scale()) {}

  /// For the watcher: decides, and wakes the thread that sets.
  void tick(std::uint64_t now_ns, std::uint64_t host_ns, std::uint64_t waited_ns) noexcept;
  /// For the setting thread: sets what was decided, if it changed or contexts were made since.
  void apply() noexcept;

 private:
  void note_coverage() noexcept;
  void show(SliceRule::Slice slice) noexcept;

  ClientSlot& client_;
  Worker& setter_;
  // Of the watcher.
  SliceRule rule_;
  GpuShare share_;
  std::uint64_t launches_ = 0;
  std::atomic<SliceRule::Slice> wanted_{};
  static_assert(std::atomic<SliceRule::Slice>::is_always_lock_free);
  // Written by the setting thread.
  std::atomic<SliceRule::Slice> set_now_{};
  std::atomic<std::uint32_t> changes_{0};
  ChannelGroups::Result result_ = ChannelGroups::Result::kNone;
  bool cannot_ = false;  ///< The last slice that was not the driver's could not be set.
  bool said_ = false;
};

}  // namespace sluice::intercept
