#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice::collector {

/// Maps CUPTI's number of a driver call to a value, such as the launch that it was. Launching
/// threads write without waiting; the thread that gets CUPTI's records of kernels reads much later.
/// A fixed size: a new call replaces an old one.
class ByCall {
 public:
  /// The driver queues about a thousand launches of a stream, and the numbers grow by one with each
  /// launch.
  static constexpr std::size_t kCalls = std::size_t{1} << 17U;

  /// `value` must not be 0, and must be near the other values, because only its low half is kept.
  void set(std::uint32_t call, std::uint64_t value) noexcept {
    places_[call % kCalls].store(std::uint64_t{call} << 32U | (value & kLow),
                                 std::memory_order_release);
    newest_.store(value, std::memory_order_release);
  }

  /// The value of a call; 0 if none is known or it was replaced.
  [[nodiscard]] std::uint64_t of(std::uint32_t call) const noexcept {
    const std::uint64_t place = places_[call % kCalls].load(std::memory_order_acquire);
    if (place == 0 || place >> 32U != call) return 0;
    const std::uint64_t newest = newest_.load(std::memory_order_acquire);
    const auto behind = static_cast<std::int32_t>(static_cast<std::uint32_t>(newest - place));
    return newest - static_cast<std::uint64_t>(std::int64_t{behind});
  }

 private:
  static constexpr std::uint64_t kLow = 0xffff'ffff;

  std::array<std::atomic<std::uint64_t>, kCalls> places_{};  ///< Call and low half of the value.
  std::atomic<std::uint64_t> newest_{0};
};

}  // namespace sluice::collector
