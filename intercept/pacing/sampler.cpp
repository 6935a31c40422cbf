#include "intercept/pacing/sampler.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/clock.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/driver/threads.hpp"

namespace sluice::intercept {

/// A sample that came to nothing leaves its events to the next.
bool Sampler::has_events(Pair& pair, ContextEvents& events, bool timed) noexcept {
  if (pair.timed != timed) give_back(pair, events.timed, events.plain);
  pair.timed = timed;
  EventPool& pool = timed ? events.timed : events.plain;
  if (pair.before == nullptr) pair.before = pool.take();
  if (pair.after == nullptr && pair.before != nullptr) pair.after = pool.take();
  return pair.after != nullptr;
}

/// The sample that another thread is in contains the caller's launch, too. Always false.
bool Sampler::spoil() noexcept {
  if (spoiled_.load(std::memory_order_relaxed)) end_abandoned();  // two launches: it lasts
  spoiled_.store(true);
  return false;
}

/// A thread that was cancelled in its launch never calls end().
void Sampler::end_abandoned() noexcept {
  pid_t thread = inside_.load();
  if (thread == 0 || !ThreadMarks::is_gone(thread)) return;
  LaunchDuration* const duration = pairs_[made_.load() % kPairs].duration;
  if (inside_.compare_exchange_strong(thread, 0)) duration->end_sample();
}

bool Sampler::begin_drawn(LaunchDuration& duration, CUstream stream, ContextEvents& events,
                          std::uint32_t most) noexcept {
  pid_t nobody = 0;
  if (duration.sampled() >= most || ended_.load() ||
      !inside_.compare_exchange_strong(nobody, thread_id()))
    return false;
  spoiled_.store(false);
  const std::uint32_t made = made_.load(std::memory_order_relaxed);
  const std::uint32_t under_way = made - taken_.load(std::memory_order_acquire);
  const bool timed = !events.channels.shared(base::monotonic_ns()) ||
                     (duration.surely_ends() && !events.channels.few());
  const bool wanted = timed ? under_way != kPairs : under_way == 0;
  const NoCancel whole;
  Pair& pair = pairs_[made % kPairs];
  const bool begins = wanted && has_events(pair, events, timed) && record_first(pair, stream);
  if (begins) {
    duration.begin_sample();
    pair.duration = &duration;
    pair.epoch = code_epoch();
    pair.started = false;
    given_ns_[made % kPairs].store(pair.host_ns);
  } else {
    inside_.store(0);
  }
  return begins;
}

bool Sampler::record_first(Pair& pair, CUstream stream) noexcept {
  pair.host_ns = base::monotonic_ns();
  const bool recorded = driver().cuEventRecord(pair.before, stream) == CUDA_SUCCESS;
  pair.between_ns = base::monotonic_ns();
  return recorded;
}

void Sampler::begun_while(std::optional<std::uint64_t> quiet,
                          std::optional<std::uint64_t> in_own_job) noexcept {
  Pair& pair = pairs_[made_.load(std::memory_order_relaxed) % kPairs];
  pair.begun = quiet;
  pair.in_own_job = in_own_job;
}

/// If the launch outlasted its stream, the pair may belong to another stream by now (restart()),
/// and then mostly to another kind of launch. If not, one sample is wrong.
void Sampler::end(LaunchDuration& duration, CUstream stream, bool launched) noexcept {
  const std::uint32_t made = made_.load(std::memory_order_relaxed);
  Pair& pair = pairs_[made % kPairs];
  if (pair.duration != &duration) return duration.end_sample();
  pair.between_ns = base::monotonic_ns() - pair.between_ns;
  if (!launched || driver().cuEventRecord(pair.after, stream) != CUDA_SUCCESS || spoiled_.load()) {
    duration.end_sample();
    inside_.store(0);
    return;
  }
  // If the GPU has not reached the first record yet, the sample contains no host time.
  const RelaxedCapture relaxed;
  const bool behind_work = driver().cuEventQuery(pair.before) == CUDA_ERROR_NOT_READY;
  pair.host_ns = behind_work ? 0 : base::monotonic_ns() - pair.host_ns;
  if (behind_work) pair.between_ns = 0;
  made_.store(made + 1);
  inside_.store(0);
  if (ended_.load()) duration.end_sample();  // nobody will collect it
}

/// Takes in the oldest sample. Null if there is none or if it is not over. The caller holds the
/// lock.
LaunchDuration* Sampler::collect_one(const Quiet& quiet, ContextEvents& events) noexcept {
  const std::uint32_t taken = taken_.load();
  if (ended_.load() || taken == made_.load(std::memory_order_acquire)) return nullptr;
  const RelaxedCapture relaxed;
  Pair& pair = pairs_[taken % kPairs];
  if (!pair.started) {
    if (driver().cuEventQuery(pair.before) == CUDA_ERROR_NOT_READY) return nullptr;
    pair.started = true;
    pair.quiet = quiet.before;
    reached_ns_.store(base::monotonic_ns());
  }
  const CUresult state = driver().cuEventQuery(pair.after);
  if (state == CUDA_ERROR_NOT_READY) return nullptr;
  reached_ns_.store(base::monotonic_ns());
  if (state == CUDA_SUCCESS && pair.timed) take_in(pair, quiet);
  if (state == CUDA_SUCCESS) pair.duration->note_end();
  give_back(pair, events.timed, events.plain);
  LaunchDuration* const duration = pair.duration;
  duration->end_sample();
  taken_.store(taken + 1, std::memory_order_release);
  return duration;
}

void Sampler::take_in(const Pair& pair, const Quiet& quiet) noexcept {
  if (!pair.duration->is_same_code(pair.epoch)) return;
  float ms = 0;
  if (driver().cuEventElapsedTime(&ms, pair.before, pair.after) != CUDA_SUCCESS) return;
  constexpr float kNsPerMs = 1e6F;
  constexpr auto kMost = static_cast<float>(std::numeric_limits<std::int32_t>::max());
  const auto ns = static_cast<std::uint32_t>(std::clamp(ms * kNsPerMs, 1.0F, kMost));
  // On an idle GPU, the time from the first record to the launch is in the sample.
  const auto own_ns =
      static_cast<std::uint32_t>(ns - std::min<std::uint64_t>(pair.between_ns, ns - 1));
  const bool alone = (quiet.now && (pair.quiet == quiet.now || pair.begun == quiet.now)) ||
                     (quiet.peers && pair.in_own_job == quiet.peers);
  if (pair.host_ns > LaunchDuration::kMostHostNs) {
    // The launch of a large graph always takes the host long, and the GPU much longer.
    constexpr std::uint64_t kMuchLonger = 16;
    if (alone && pair.host_ns * kMuchLonger <= ns) pair.duration->add_to_mean(own_ns);
  } else if (alone) {
    pair.duration->add_sample(ns, pair.host_ns == 0, own_ns);
  } else {
    pair.duration->add_bound(ns);
  }
}

std::uint64_t Sampler::progress_ns(std::uint64_t given_ns) const noexcept {
  const std::uint32_t taken = taken_.load();
  const bool waits = taken != made_.load(std::memory_order_acquire);
  return std::max(reached_ns_.load(), waits ? given_ns_[taken % kPairs].load() : given_ns);
}

void Sampler::restart() noexcept {
  const std::lock_guard lock(ending_);
  pairs_.fill({});
  reached_ns_.store(0);
  made_.store(0);
  taken_.store(0);
  inside_.store(0);
  ended_.store(false);
}

/// The events of a launch that outlasts its stream are left to the context.
void Sampler::end_stream(const EventReturn& timed, const EventReturn& plain) noexcept {
  const std::lock_guard lock(ending_);
  if (ended_.exchange(true)) return;
  end_abandoned();
  for (std::uint32_t i = taken_.load(); i != made_.load(); ++i) {
    pairs_[i % kPairs].duration->end_sample();
  }
  for (Pair& pair : pairs_) {
    const bool in_use = inside_.load() != 0 && &pair == &pairs_[made_.load() % kPairs];
    if (!in_use) give_back(pair, timed, plain);
  }
}

}  // namespace sluice::intercept
