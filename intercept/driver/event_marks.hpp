#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "intercept/driver/entries.hpp"

namespace sluice::intercept {

/// Which events the program has recorded lately, and in which period. A period ends with each step
/// of the process (docs/reference/steps.md). The table is small: an event that another one has
/// displaced is not known, and the wait for it ends no step.
class EventMarks {
 public:
  /// Before an event is recorded. A few instructions, no lock: allocators and NCCL record events
  /// all the time. Two events that are noted at once in one place may exchange their periods.
  void note(CUevent event) noexcept {
    Place& place = place_of(event);
    place.event.store(event, std::memory_order_relaxed);
    place.period.store(period_.load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  /// The period in which the event was recorded last; 0: it is not known, or was taken already.
  [[nodiscard]] std::uint64_t take(CUevent event) noexcept {
    Place& place = place_of(event);
    CUevent expected = event;
    const std::uint64_t period = place.period.load(std::memory_order_relaxed);
    return place.event.compare_exchange_strong(expected, nullptr) ? period : 0;
  }
  [[nodiscard]] std::uint64_t period() const noexcept { return period_.load(); }
  /// Returns the period that ends.
  std::uint64_t end_period() noexcept { return period_.fetch_add(1); }

 private:
  static constexpr unsigned kBits = 6;
  struct Place {
    std::atomic<CUevent> event{nullptr};
    std::atomic<std::uint64_t> period{0};
  };
  [[nodiscard]] Place& place_of(CUevent event) noexcept {
    constexpr std::uint64_t kSpread = 0x9e37'79b9'7f4a'7c15;
    return places_[reinterpret_cast<std::uintptr_t>(event) * kSpread >> (64 - kBits)];
  }
  std::array<Place, std::size_t{1} << kBits> places_{};
  std::atomic<std::uint64_t> period_{1};
};

}  // namespace sluice::intercept
