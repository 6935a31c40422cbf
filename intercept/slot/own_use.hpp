#pragma once
#include <cstdint>

#include "base/gpu_use.hpp"

namespace sluice::intercept {

/// Whether this client uses the GPU (Slot::busy_ns), from the estimate of its GPU time. Pure.
class OwnUse {
 public:
  /// Work of unknown duration counts as use for as long as its job runs, but for so long at most
  /// after the last launch: it may wait for the program.
  static constexpr std::uint64_t kUnknownNs = 10'000'000'000;

  struct Seen {
    std::uint64_t gpu_ns = 0;    ///< The estimate so far (Slot::gpu_ns).
    std::uint64_t launches = 0;  ///< So far.
    bool has_job = false;
    bool held = false;  ///< By others: nothing of it runs, whatever it has queued.
  };

  /// Call it every 20 ms.
  bool tick(const Seen& seen, std::uint64_t now_ns) noexcept {
    const bool first = now_ns_ == 0;
    const std::uint64_t passed_ns = first ? 0 : now_ns - now_ns_;
    const std::uint64_t gpu_ns = first || seen.gpu_ns < gpu_ns_ ? 0 : seen.gpu_ns - gpu_ns_;
    now_ns_ = now_ns;
    gpu_ns_ = seen.gpu_ns;
    if (first || gpu_ns != 0) measured_ = seen.launches;
    if (seen.launches != launches_) launched_ns_ = now_ns;
    launches_ = seen.launches;
    const std::uint64_t ran_ns = seen.held ? 0 : passed_ns;
    const bool unknown =
        seen.has_job && seen.launches != measured_ && now_ns - launched_ns_ < kUnknownNs;
    return use_.add(unknown ? ran_ns : gpu_ns, ran_ns, seen.has_job && !unknown);
  }

 private:
  base::GpuUse use_;
  std::uint64_t now_ns_ = 0;
  std::uint64_t gpu_ns_ = 0;
  std::uint64_t launches_ = 0;
  std::uint64_t launched_ns_ = 0;
  std::uint64_t measured_ = 0;  ///< The launches when the estimate last grew.
};

}  // namespace sluice::intercept
