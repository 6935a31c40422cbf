#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice::collector {

/// The memory for CUPTI's records: a fixed number of buffers, so that a process whose launches are
/// held does not grow. Launching threads take buffers, so nothing here waits.
class Buffers {
 public:
  /// Small, because CUPTI returns a buffer only when the last kernel in it has ended, and a killed
  /// process loses the records in its buffers. About 240 launches each.
  static constexpr std::size_t kSize = 64UL << 10U;
  static constexpr std::size_t kCount = 512;

  /// False if the memory cannot be reserved. Pages are allocated at their first use.
  bool reserve() noexcept;

  /// A zeroed buffer of kSize bytes. Null if all are taken; CUPTI then drops records.
  std::uint8_t* take() noexcept;
  /// Zeroes it and takes it back.
  void give_back(std::uint8_t* buffer) noexcept;

 private:
  std::uint8_t* memory_ = nullptr;
  std::array<std::atomic<bool>, kCount> taken_{};
};

}  // namespace sluice::collector
