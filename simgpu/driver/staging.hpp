#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>

#include "simgpu/driver/api.hpp"

namespace sluice::simgpu {

struct Stream;

// Shared buffers for asynchronous copies out of memory the GPU does not know: the call copies the
// bytes here and returns, as the real driver does.
class Staging {
 public:
  static constexpr std::size_t kSlots = 64;
  static constexpr std::size_t kSlotBytes = 65536;

  // The address of a buffer with a copy of the bytes; 0: too many bytes, or all are in use.
  std::uint64_t put(const void* from, std::size_t bytes);
  // The buffer is in use until the stream has completed `sequence`.
  void used_until(std::uint64_t at, std::shared_ptr<Stream> stream, std::uint64_t sequence);

 private:
  struct Slot {
    bool taken = false;
    std::shared_ptr<Stream> stream;
    std::uint64_t sequence = 0;
  };
  std::mutex mutex_;
  std::uint64_t base_ = 0;
  std::array<Slot, kSlots> slots_;
};

}  // namespace sluice::simgpu
