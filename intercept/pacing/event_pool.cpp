#include "intercept/pacing/event_pool.hpp"

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
    if (driver().cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) break;
    if (state().begun == known.begun) give_back(event);  // or it has ended with its context
  }
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent_v2(&popped);
}

/// A pool under the same handle, but another number, is that of a context that has ended.
EventPool& EventPools::of(const ContextId& context) {
  EventPool* pool = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (EventPool& each : pools_) {
      const ContextId its = each.state().context;
      if (its.is(context)) return each;
      if (its.handle == nullptr || its.handle == context.handle) pool = &each;
    }
    if (pool == nullptr) pool = &pools_.emplace_back(poller_);
    pool->restart(context);
  }
  pool->fill(pool->state());
  return *pool;
}

EventPool* EventPools::at(std::size_t index) noexcept {
  const std::lock_guard lock(mutex_);
  return index < pools_.size() ? &pools_[index] : nullptr;
}

void EventPools::fill() noexcept {
  for (std::size_t i = 0; EventPool* const pool = at(i); ++i) {
    const EventPool::State known = pool->state();
    if (known.context.handle == nullptr || known.count >= EventPool::kLow) continue;
    if (DriverQuery::is_under_way(known.context.handle)) continue;  // it blocks another thread
    const DriverQuery query(known.context.handle);
    // The context may have ended before the query.
    if (query && pool->state().begun == known.begun) pool->fill(known);
  }
}

void EventPools::context_ended(const ContextId& context) noexcept {
  const std::lock_guard lock(mutex_);
  for (EventPool& pool : pools_) {
    if (context.ends(pool.state().context)) pool.restart({});
  }
}

}  // namespace sluice::intercept
