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

Worker::Sleep Clients::poll() {
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
  constexpr std::uint64_t kIdleNs = 1'000'000'000;
  const bool hinted = hinted_.exchange(false);
  bool active = false;
  bool begun = false;
  bool learning = false;
  for_each([&](Client& client) {
    if (g_process.leaving.load()) return;
    client.jobs().poll(hinted);
    if (client.pacer().collect_samples()) {
      last_sampled_ns_ = base::monotonic_ns();
      learning = learning || client.must_pace();
    }
    active = client.jobs().need_polling() || active;
    begun = client.jobs().has_begun() || begun;
  });
  const std::uint64_t now = base::monotonic_ns();
  if (active || begun) last_active_ns_ = now;
  if (active && hinted) return {kHintedPeriodNs, false};
  if (learning) return {kSamplingPeriodNs, false, true};
  if (now - last_active_ns_ < kStayAwakeNs) return {kPeriodNs, false, true};
  if (now - last_sampled_ns_ < kStayAwakeNs) return {kCountingPeriodNs, false};
  return {kIdleNs, true};
}

}  // namespace sluice::intercept
