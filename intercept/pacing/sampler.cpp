#include "intercept/pacing/sampler.hpp"

#include <algorithm>
#include <limits>

#include "base/clock.hpp"
#include "intercept/pacing/capture.hpp"

namespace sluice::intercept {

/// Once per pair: creation can block in the driver, and is dear.
bool Sampler::has_events(Pair& pair) noexcept {
  if (pair.after != nullptr) return true;
  const RelaxedCapture relaxed;
  if (driver().cuEventCreate(&pair.before, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return false;
  if (driver().cuEventCreate(&pair.after, CU_EVENT_DEFAULT) == CUDA_SUCCESS) return true;
  driver().cuEventDestroy_v2(pair.before);
  pair.before = pair.after = nullptr;
  return false;
}

/// True once in so many times, at random: programs repeat themselves, and what is picked by
/// counting could be the same launches again and again. (A linear congruential generator; Numerical
/// Recipes.)
bool Sampler::draw(std::uint32_t one_in) noexcept {
  random_ = random_ * 1'664'525U + 1'013'904'223U;
  return random_ < std::numeric_limits<std::uint32_t>::max() / one_in;
}

bool Sampler::begin(LaunchDuration& length, CUstream stream) noexcept {
  // Another thread's launch into this stream is between its begin() and end(): ours is in its time.
  if (open_) spoiled_ = true;
  if (open_ || ended_.load()) return false;
  const std::uint32_t made = made_.load(std::memory_order_relaxed);
  if (made - taken_.load(std::memory_order_acquire) == kPairs) return false;
  if (length.is_sampled()) return false;
  if (length.known() && !draw(length.wants_samples() ? kSoon : kAgain)) return false;
  Pair& pair = pairs_[made % kPairs];
  if (!has_events(pair)) return false;
  pair.host_ns = base::monotonic_ns();
  if (driver().cuEventRecord(pair.before, stream) != CUDA_SUCCESS) return false;
  length.begin_sample();
  pair.length = &length;
  pair.started = false;
  open_ = true;
  spoiled_ = false;
  return true;
}

void Sampler::begun_while(std::optional<std::uint64_t> quiet) noexcept {
  pairs_[made_.load(std::memory_order_relaxed) % kPairs].begun = quiet;
}

void Sampler::end(CUstream stream, bool launched) noexcept {
  const std::uint32_t made = made_.load(std::memory_order_relaxed);
  Pair& pair = pairs_[made % kPairs];
  open_ = false;
  if (spoiled_ || !launched || driver().cuEventRecord(pair.after, stream) != CUDA_SUCCESS) {
    return pair.length->end_sample();
  }
  // Where the GPU has not come to the first record yet, the host's time is not in the sample.
  const RelaxedCapture relaxed;
  const bool behind_work = driver().cuEventQuery(pair.before) == CUDA_ERROR_NOT_READY;
  pair.host_ns = behind_work ? 0 : base::monotonic_ns() - pair.host_ns;
  made_.store(made + 1);
  if (ended_.load()) pair.length->end_sample();  // nobody will take it in
}

bool Sampler::collect(std::optional<std::uint64_t> before,
                      std::optional<std::uint64_t> now) noexcept {
  const std::lock_guard lock(ending_);
  if (ended_.load()) return false;
  const RelaxedCapture relaxed;
  for (std::uint32_t taken = taken_.load(); taken != made_.load(std::memory_order_acquire);
       taken_.store(++taken, std::memory_order_release)) {
    Pair& pair = pairs_[taken % kPairs];
    if (!pair.started) {
      if (driver().cuEventQuery(pair.before) == CUDA_ERROR_NOT_READY) return true;
      pair.started = true;
      pair.quiet = before;
    }
    const CUresult state = driver().cuEventQuery(pair.after);
    if (state == CUDA_ERROR_NOT_READY) return true;
    if (state == CUDA_SUCCESS) take_in(pair, now);
    pair.length->end_sample();
  }
  return false;
}

void Sampler::take_in(const Pair& pair, std::optional<std::uint64_t> now) noexcept {
  float ms = 0;
  if (!now || (pair.quiet != now && pair.begun != now) ||
      pair.host_ns > LaunchDuration::kMostHostNs ||
      driver().cuEventElapsedTime(&ms, pair.before, pair.after) != CUDA_SUCCESS) {
    return;
  }
  constexpr float kNsPerMs = 1e6F;
  constexpr auto kMost = static_cast<float>(std::numeric_limits<std::int32_t>::max());
  pair.length->add_sample(static_cast<std::uint32_t>(std::clamp(ms * kNsPerMs, 1.0F, kMost)),
                          pair.host_ns == 0);
}

void Sampler::end_stream(bool gone) noexcept {
  const std::lock_guard lock(ending_);
  if (ended_.exchange(true)) return;
  for (std::uint32_t i = taken_.load(); i != made_.load(); ++i) {
    pairs_[i % kPairs].length->end_sample();
  }
  if (gone) return;
  for (const Pair& pair : pairs_) {
    if (pair.after == nullptr) continue;
    driver().cuEventDestroy_v2(pair.before);
    driver().cuEventDestroy_v2(pair.after);
  }
}

}  // namespace sluice::intercept
