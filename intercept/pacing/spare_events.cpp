#include "intercept/pacing/spare_events.hpp"

#include <algorithm>
#include <utility>

#include "intercept/driver/driver_query.hpp"

namespace sluice::intercept {

CUevent SpareEvents::take() noexcept {
  const std::lock_guard lock(mutex_);
  if (count_ != 0) return events_[--count_];
  wanted_.store(true);
  return nullptr;
}

std::uint32_t SpareEvents::ended() noexcept {
  const std::lock_guard lock(mutex_);
  return ended_;
}

void SpareEvents::make(std::uint32_t ended) noexcept {
  const RelaxedCapture relaxed;
  std::size_t wanted = 0;
  {
    const std::lock_guard lock(mutex_);
    wanted = next_;
    next_ = std::min(2 * next_, kMost);
  }
  for (; wanted != 0; --wanted) {
    CUevent event = nullptr;
    if (driver().cuEventCreate(&event, CU_EVENT_DEFAULT) != CUDA_SUCCESS) return;
    if (add(event, ended)) continue;
    driver().cuEventDestroy_v2(event);
    return;
  }
}

/// False if the stream has ended meanwhile, or has enough.
bool SpareEvents::add(CUevent event, std::uint32_t ended) noexcept {
  const std::lock_guard lock(mutex_);
  if (ended != ended_ || count_ == kMost) return false;
  events_[count_++] = event;
  wanted_.store(false);
  return true;
}

void SpareEvents::end_stream(bool gone) noexcept {
  std::array<CUevent, kMost> left{};
  std::size_t count = 0;
  {
    const std::lock_guard lock(mutex_);
    left = events_;
    count = std::exchange(count_, 0);
    next_ = kFirst;
    ++ended_;
    wanted_.store(false);
  }
  if (gone) return;
  for (std::size_t i = 0; i < count; ++i) driver().cuEventDestroy_v2(left[i]);
}

}  // namespace sluice::intercept
