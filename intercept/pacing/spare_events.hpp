#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>

#include "intercept/driver/driver.hpp"

namespace sluice::intercept {

/// Events of one stream, made by the polling thread. A launch makes none: while a queue of the
/// context is full, the driver blocks whoever makes an event, and perhaps only the launching thread
/// can end that.
class SpareEvents {
 public:
  /// Null if there is none. Then the polling thread has to make some.
  [[nodiscard]] CUevent take() noexcept;
  [[nodiscard]] bool wanted() const noexcept { return wanted_.load(std::memory_order_relaxed); }

  /// For the polling thread: whether events are wanted since the last call.
  [[nodiscard]] bool take_wish() noexcept { return wanted_.exchange(false); }
  /// Streams that have ended.
  [[nodiscard]] std::uint32_t ended() noexcept;
  /// Makes events in the current context. May block. `ended`: ended(), before the context was
  /// known. A stream gets twice as many each time, because most streams need few.
  void make(std::uint32_t ended) noexcept;

  /// Call when the stream ends. If it ended with its context (`gone`), so did the events.
  void end_stream(bool gone) noexcept;

 private:
  static constexpr std::size_t kFirst = 2;
  static constexpr std::size_t kMost = 32;
  [[nodiscard]] bool add(CUevent event, std::uint32_t ended) noexcept;

  std::atomic<bool> wanted_{false};
  std::mutex mutex_;  ///< Guards the members below. Never held during a driver call.
  std::array<CUevent, kMost> events_{};
  std::size_t count_ = 0;
  std::size_t next_ = kFirst;  ///< How many the next make() makes.
  std::uint32_t ended_ = 0;
};

}  // namespace sluice::intercept
