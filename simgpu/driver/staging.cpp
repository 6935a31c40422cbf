#include "simgpu/driver/staging.hpp"

#include <cstring>

#include "simgpu/driver/context.hpp"
#include "simgpu/driver/stream.hpp"

namespace sluice::simgpu {

std::uint64_t Staging::put(const void* from, std::size_t bytes) {
  if (bytes > kSlotBytes) return 0;
  const std::lock_guard lock(mutex_);
  if (base_ == 0) {
    const Context of_no_context;
    const CUresult status =
        memory_.allocate(of_no_context, MemoryKind::kHost, kSlots * kSlotBytes, base_);
    if (status != CUDA_SUCCESS) return 0;
  }
  for (std::size_t i = 0; i < kSlots; ++i) {
    Slot& slot = slots_.at(i);
    if (slot.stream && slot.stream->completed(slot.sequence)) slot = Slot();
    if (slot.taken) continue;
    slot.taken = true;
    const std::uint64_t at = base_ + i * kSlotBytes;
    std::memcpy(reinterpret_cast<void*>(at), from, bytes);
    return at;
  }
  return 0;
}

void Staging::used_until(std::uint64_t at, std::shared_ptr<Stream> stream, std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_.at((at - base_) / kSlotBytes);
  slot.stream = std::move(stream);
  slot.sequence = sequence;
}

}  // namespace sluice::simgpu
