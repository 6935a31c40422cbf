#include "intercept/pacing/streams.hpp"

#include <algorithm>
#include <utility>

#include "intercept/driver/machine.hpp"
#include "intercept/driver/threads.hpp"

namespace sluice::intercept {

void LaunchLock::wait() noexcept {
  constexpr int kSpins = 100;
  constexpr std::uint64_t kLongNs = 1'000'000'000;
  const auto taken = [this] { return taken_.load(std::memory_order_relaxed); };
  do {
    for (int i = 0; i < kSpins && taken(); ++i) pause_processor();
    if (taken()) nap_while(taken, kLongNs);
  } while (!try_lock());
}

void Stream::restart() noexcept {
  touched = 0;
  policy = {};
  launches = 0;
  group_end = {};
  recorded = {};
  // What a launch that outlasted the stream before has spent is nobody's.
  const std::uint64_t left_ns = std::exchange(run_ns, 0);
  if (account != nullptr) account->fetch_sub(left_ns);
  owes_wait = false;
  idle = false;
  previous = 0;
  sampler.restart();
  run_ahead.end_stream(true);
}

Stream::Key Streams::key_of(CUstream stream, CUcontext context) noexcept {
  if (stream == CU_STREAM_PER_THREAD) return {stream, context, thread_id()};
  if (stream == nullptr || stream == CU_STREAM_LEGACY) return {nullptr, context, 0};
  return {stream, nullptr, 0};
}

Stream* Streams::find(const Stream::Key& key) {
  const std::lock_guard lock(mutex_);
  const auto found = known_.find(key);
  return found == known_.end() ? nullptr : found->second;
}

Stream* Streams::add(const Stream::Key& key, CUcontext context, Client& client, Pacer& pacer) {
  const std::lock_guard lock(mutex_);
  Stream*& place = known_[key];
  if (place != nullptr) return place;
  try {
    if (free_.empty()) {
      place = &records_.emplace_back();
    } else {
      place = free_.back();
      free_.pop_back();
    }
  } catch (...) {
    known_.erase(key);
    throw;
  }
  place->restart();
  place->key = key;
  place->context = context;
  place->client = &client;
  place->pacer = &pacer;
  return place;
}

bool Streams::too_many() {
  const std::lock_guard lock(mutex_);
  if (known_.size() < many_) return false;
  many_ = 2 * known_.size();
  return true;
}

}  // namespace sluice::intercept
