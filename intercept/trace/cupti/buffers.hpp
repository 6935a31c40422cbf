#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sluice::collector {

/// The memory that CUPTI writes its records into: a fixed number of buffers, so that a process
/// whose launches are parked does not grow. Launching threads take buffers, so this waits for
/// nothing.
class Buffers {
 public:
  /// Small, because CUPTI hands a buffer over when the last kernel in it has ended: a killed
  /// process loses what is in them. About 240 launches each.
  static constexpr std::size_t kSize = 64UL << 10U;
  static constexpr std::size_t kCount = 512;

  /// False if the system has no such memory. Pages come with their first use.
  bool reserve() noexcept;

  /// A zeroed buffer of kSize bytes, or null: CUPTI then drops records.
  std::uint8_t* take() noexcept;
  /// Zeroes it and takes it back.
  void give_back(std::uint8_t* buffer) noexcept;

 private:
  std::uint8_t* memory_ = nullptr;
  std::array<std::atomic<bool>, kCount> taken_{};
};

}  // namespace sluice::collector
