#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice::collector {

/// What is known of a call of the driver, by CUPTI's number of the call: which launch it was, say.
/// Written by the launching threads, which wait for nothing here; read by who gets CUPTI's records
/// of kernels, long after. A fixed size: an old call gives its place to a new one.
class ByCall {
 public:
  /// The driver queues about a thousand launches of a stream; numbers go up by one a launch.
  static constexpr std::size_t kCalls = std::size_t{1} << 17U;

  /// `value`: not 0, and near the others (only the low half is kept).
  void set(std::uint32_t call, std::uint64_t value) noexcept {
    places_[call % kCalls].store(std::uint64_t{call} << 32U | (value & kLow),
                                 std::memory_order_release);
    newest_.store(value, std::memory_order_release);
  }

  /// 0 if nothing is known of it, or it is too long ago.
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
