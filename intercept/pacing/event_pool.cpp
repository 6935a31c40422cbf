#include "intercept/pacing/event_pool.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/clock.hpp"
#include "intercept/driver/driver_query.hpp"

namespace sluice::intercept {

CUevent EventPool::take() noexcept {
  CUevent event = nullptr;
  bool few = false;
  {
    const std::lock_guard lock(mutex_);
    few = state_.count <= kLow;
    if (state_.count != 0) event = events_[--state_.count];
  }
  if (few) poller_.wake();
  return event;
}

void EventPool::give_back(CUevent event, const ContextId* its) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (its != nullptr && !state_.context.is(*its)) return;
    if (state_.count < kMost) {
      events_[state_.count++] = event;
      return;
    }
  }
  driver().cuEventDestroy_v2(event);
}

EventPool::State EventPool::state() noexcept {
  const std::lock_guard lock(mutex_);
  return state_;
}

void EventPool::restart(const ContextId& context) noexcept {
  const std::lock_guard lock(mutex_);
  state_ = {context, state_.begun + 1, 0};
}

void EventPool::fill(const State& known) noexcept {
  const RelaxedCapture relaxed;
  if (driver().cuCtxPushCurrent_v2(known.context.handle) != CUDA_SUCCESS) return;
  CUevent event = nullptr;
  for (State now = known; now.begun == known.begun && now.count < kFilled; now = state()) {
    if (driver().cuEventCreate(&event, flags_) != CUDA_SUCCESS) break;
    if (state().begun == known.begun) give_back(event);  // or it has ended with its context
  }
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent_v2(&popped);
}

void Channels::begin(const char* connections, bool under_mps) noexcept {
  constexpr std::size_t kMost = 32;
  constexpr std::size_t kUnderMps = 2;
  std::size_t channels = under_mps ? kUnderMps : kDefault;
  if (connections != nullptr) {
    const std::string_view text = connections;
    std::size_t said = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), said);
    if (read.ec == std::errc{} && said != 0) channels = std::min(said, kMost);
  }
  channels_.store(channels);
  most_.store(0);
  until_ns_.store(0);
}

void Channels::note_more(std::size_t streams) noexcept {
  most_.store(streams);
  until_ns_.store(std::max(until_ns_.load(), base::monotonic_ns() + kSettleNs));
}

void Channels::note_shared() noexcept { until_ns_.store(base::monotonic_ns() + kAgainNs); }

/// Pools under the same handle, but another number, are those of a context that has ended.
ContextEvents& EventPools::of(const ContextId& context) {
  ContextEvents* pools = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (ContextEvents& each : pools_) {
      const ContextId its = each.timed.state().context;
      if (its.is(context)) return each;
      if (its.handle == nullptr || its.handle == context.handle) pools = &each;
    }
    if (pools == nullptr) pools = &pools_.emplace_back(poller_);
    pools->channels.begin(std::getenv("CUDA_DEVICE_MAX_CONNECTIONS"), under_mps_);
    for (EventPool* const each : {&pools->timed, &pools->plain}) each->restart(context);
  }
  for (EventPool* const each : {&pools->timed, &pools->plain}) each->fill(each->state());
  return *pools;
}

ContextEvents* EventPools::at(std::size_t index) noexcept {
  const std::lock_guard lock(mutex_);
  return index < pools_.size() ? &pools_[index] : nullptr;
}

void EventPools::fill() noexcept {
  for (std::size_t i = 0; ContextEvents* const pools = at(i); ++i) {
    for (EventPool* const pool : {&pools->timed, &pools->plain}) {
      const EventPool::State known = pool->state();
      if (known.context.handle == nullptr || known.count >= EventPool::kLow) continue;
      if (DriverQuery::is_under_way(known.context.handle)) continue;  // it blocks another thread
      const DriverQuery query(known.context.handle);
      // The context may have ended before the query.
      if (query && pool->state().begun == known.begun) pool->fill(known);
    }
  }
}

void EventPools::context_ended(const ContextId& context) noexcept {
  const std::lock_guard lock(mutex_);
  for (ContextEvents& pools : pools_) {
    for (EventPool* const pool : {&pools.timed, &pools.plain}) {
      if (context.ends(pool->state().context)) pool->restart({});
    }
  }
}

}  // namespace sluice::intercept
