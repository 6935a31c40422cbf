#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>

#include "simgpu/driver/memory.hpp"

namespace sluice::simgpu {

struct Stream;

// Shared buffers for asynchronous copies from memory that the GPU process does not know. The call
// copies the bytes into a buffer and returns, as in the real driver.
class Staging {
 public:
  static constexpr std::size_t kSlots = 64;
  static constexpr std::size_t kSlotBytes = 65536;

  explicit Staging(Memory& memory) : memory_(memory) {}

  // Copies the bytes into a buffer and returns its address. Returns 0 if there are too many bytes
  // or no free buffer.
  std::uint64_t put(const void* from, std::size_t bytes);
  // Keeps the buffer in use until the stream has completed `sequence`.
  void used_until(std::uint64_t at, std::shared_ptr<Stream> stream, std::uint64_t sequence);

 private:
  struct Slot {
    bool taken = false;
    std::shared_ptr<Stream> stream;
    std::uint64_t sequence = 0;
  };
  Memory& memory_;
  std::mutex mutex_;
  std::uint64_t base_ = 0;
  std::array<Slot, kSlots> slots_;
};

}  // namespace sluice::simgpu
