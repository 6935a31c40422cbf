#include "simgpu/driver/event.hpp"

namespace sluice::simgpu {

std::size_t EventSlots::take() {
  const std::lock_guard lock(mutex_);
  if (free_.empty()) return used_ == kMaxEvents ? kMaxEvents : used_++;
  const std::size_t index = free_.back();
  free_.pop_back();
  return index;
}

void EventSlots::give_back(std::size_t index) {
  const std::lock_guard lock(mutex_);
  free_.push_back(index);
}

Event::~Event() { slots.give_back(slot); }

Event::Record Event::last_record() {
  const std::lock_guard lock(mutex);
  return record;
}

}  // namespace sluice::simgpu
