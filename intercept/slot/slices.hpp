#pragma once
#include <atomic>
#include <cstdint>

#include "intercept/driver/threads.hpp"
#include "intercept/slot/client_slot.hpp"
#include "intercept/slot/own_use.hpp"
#include "intercept/slot/slice_rule.hpp"

namespace sluice::intercept {

/// The time slice of a client. The watcher decides; another thread asks the kernel module, which
/// may be busy with something long.
class Slices {
 public:
  Slices(ClientSlot& client, Worker& setter) noexcept
      : client_(client), setter_(setter), rule_(client.time_scale()) {}

  /// A setting that failed is tried again after this time, then after twice as long, and so on.
  static constexpr std::uint64_t kFirstRetryNs = 100'000'000;
  static constexpr std::uint64_t kLastRetryNs = 10'000'000'000;

  /// For the watcher: decides, and wakes the thread that sets. Returns whether it had to.
  bool tick(std::uint64_t now_ns, std::uint64_t host_ns, std::uint64_t waited_ns) noexcept;
  /// For the setting thread: sets what was decided, if it changed, if contexts were made or ended
  /// since, or if it failed the last time.
  void apply() noexcept;

 private:
  void note_use(std::uint64_t now_ns) noexcept;
  void note_coverage() noexcept;
  [[nodiscard]] bool must_set(SliceRule::Slice slice, std::uint32_t changes) const noexcept;
  void plan_retry() noexcept;
  void show(SliceRule::Slice slice) noexcept;

  ClientSlot& client_;
  Worker& setter_;
  // Of the watcher.
  SliceRule rule_;
  GpuShare share_;
  OwnUse use_;
  std::atomic<SliceRule::Slice> wanted_{};
  static_assert(std::atomic<SliceRule::Slice>::is_always_lock_free);
  std::atomic<std::uint64_t> now_ns_{0};
  // Written by the setting thread.
  std::atomic<SliceRule::Slice> set_now_{};
  std::atomic<std::uint32_t> changes_{0};
  std::atomic<std::uint64_t> retry_ns_{0};  ///< When to try again; 0: the last setting succeeded.
  ChannelGroups::Result result_ = ChannelGroups::Result::kNone;
  int failures_ = 0;  ///< In a row.
  /// Of the last slice that was not the driver's.
  ChannelGroups::Result last_ = ChannelGroups::Result::kSet;
  bool said_ = false;
};

}  // namespace sluice::intercept
