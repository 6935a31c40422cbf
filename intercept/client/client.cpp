#include "intercept/client/client.hpp"

#include "base/clock.hpp"
#include "intercept/driver/log.hpp"

namespace sluice::intercept {

void Client::warn_of_vain_limit(std::uint64_t bytes) const noexcept {
  std::size_t total = 0;
  if (bytes == 0 || driver().cuDeviceTotalMem_v2(&total, device()) != CUDA_SUCCESS) return;
  if (bytes <= total) return;
  Line(Level::kWarn) << "GPU " << device() << " has " << (total >> 20U) << " MiB: the limit of "
                     << (bytes >> 20U) << " MiB has no effect there";
}

/// While a gate is closed, the driver may block whoever makes an event, until the gate opens.
Worker::Sleep Client::poll() {
  constexpr std::uint64_t kPeriodNs = 1'000'000;
  // After a look that the program asked for in vain. It may ask again and again.
  constexpr std::uint64_t kHintedPeriodNs = 200'000;
  // While launches are being measured. No other client may have run for this long before and after
  // a launch.
  constexpr std::uint64_t kSamplingPeriodNs = 400'000;
  // While launches are measured for the GPU time only.
  constexpr std::uint64_t kCountingPeriodNs = 2'000'000;
  // Jobs that follow each other closely find the poller awake and need not wake it, also if they
  // are over before it has looked.
  constexpr std::uint64_t kStayAwakeNs = 100'000'000;
  // While a job holds nobody.
  constexpr std::uint64_t kSlowPeriodNs = 10'000'000;
  constexpr std::uint64_t kIdleNs = 1'000'000'000;
  if (g_process.leaving.load()) return {kIdleNs, true};
  look_at_ending_streams_();
  const bool hinted = hinted_.exchange(false);
  jobs_.poll(hinted);
  const bool sampled = pacer_.collect_samples();
  const bool learning = sampled && must_pace();
  if (sampled) last_sampled_ns_.store(base::monotonic_ns());
  if (!gate_closed()) event_pools_.fill();
  const bool active = jobs_.need_polling();
  const bool begun = jobs_.has_begun();
  const std::uint64_t now = base::monotonic_ns();
  if (active || begun) last_active_ns_.store(now);
  if (active && hinted) return {kHintedPeriodNs, false};
  if (learning) return {kSamplingPeriodNs, false, true};
  if (jobs_.need_slow_polling()) return {kSlowPeriodNs, false};
  if (now - last_active_ns_.load() < kStayAwakeNs) return {kPeriodNs, false, true};
  if (now - last_sampled_ns_.load() < kStayAwakeNs) return {kCountingPeriodNs, false};
  return {kIdleNs, true};
}

Worker::Sleep Client::step_switch() noexcept {
  constexpr std::uint64_t kIdleNs = 1'000'000'000;
  if (!g_process.leaving.load() && switch_wanted_.exchange(false)) early_switch_();
  return {kIdleNs, true};
}

}  // namespace sluice::intercept
