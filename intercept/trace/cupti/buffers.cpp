#include "intercept/trace/cupti/buffers.hpp"

#include <sys/mman.h>

#include <cstring>

namespace sluice::collector {

bool Buffers::reserve() noexcept {
  void* memory = mmap(nullptr, kSize * kCount, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return false;
  memory_ = static_cast<std::uint8_t*>(memory);
  return true;
}

std::uint8_t* Buffers::take() noexcept {
  for (std::size_t i = 0; i < kCount; ++i) {
    if (!taken_[i].load(std::memory_order_relaxed) &&
        !taken_[i].exchange(true, std::memory_order_acquire)) {
      return memory_ + i * kSize;
    }
  }
  return nullptr;
}

void Buffers::give_back(std::uint8_t* buffer) noexcept {
  const auto offset = static_cast<std::size_t>(buffer - memory_);
  if (buffer < memory_ || offset >= kSize * kCount) return;
  std::memset(buffer, 0, kSize);
  taken_[offset / kSize].store(false, std::memory_order_release);
}

}  // namespace sluice::collector
