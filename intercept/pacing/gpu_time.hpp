#pragma once
#include <cstdint>

#include "intercept/pacing/durations.hpp"
#include "intercept/slot/client_slot.hpp"

namespace sluice::intercept {

/// The GPU time of a client's work (Slot::gpu_ns), an estimate: of each kind of launch, the number
/// of launches that its drawn launches stand for (launch_draw.hpp), times its mean duration.
/// Launches of a kind that nobody has measured yet are owed until somebody has. A kind that was
/// only measured next to jobs of others has a mean that may be several times too high, because it
/// has time slices of others in it: that part of the estimate is also counted by itself
/// (Slot::gpu_bound_ns).
class GpuTime {
 public:
  GpuTime(ClientSlot& client, bool on) noexcept : client_(client), on_(on) {}

  [[nodiscard]] bool on() const noexcept { return on_; }
  /// For a drawn launch of this kind, which stands for `launches`. Returns whether it should be
  /// measured.
  [[nodiscard]] bool add(LaunchDuration& kind, std::uint32_t launches) noexcept {
    if (!on_) return false;
    kind.owe(launches);
    pay(kind);
    return kind.mean_ns() == 0 || kind.is_turn();
  }
  /// Adds what is owed of this kind, if its mean duration is known. Any thread may call this.
  void pay(LaunchDuration& kind) noexcept {
    const std::uint64_t mean_ns = kind.mean_ns();
    const std::uint64_t launches = mean_ns == 0 ? 0 : kind.take_owed();
    if (launches == 0) return;
    const std::uint64_t took_ns = client_.to_real_ns(launches * mean_ns);
    shm::Slot& slot = client_.slot();
    slot.gpu_ns.fetch_add(took_ns, std::memory_order_relaxed);
    if (kind.mean_is_bound()) slot.gpu_bound_ns.fetch_add(took_ns, std::memory_order_relaxed);
  }

 private:
  ClientSlot& client_;
  bool on_;
};

}  // namespace sluice::intercept
