#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

namespace sluice::simgpu {

// Owner of a shared mapping of a file.
class Mapping {
 public:
  Mapping() = default;
  Mapping(int fd, std::size_t bytes, off_t offset) : bytes_(bytes) {
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, offset);
    if (at != MAP_FAILED) address_ = at;
  }
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)), bytes_(other.bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (address_ != nullptr) munmap(address_, bytes_);
  }

  [[nodiscard]] void* get() const { return address_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  explicit operator bool() const { return address_ != nullptr; }

 private:
  void* address_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace sluice::simgpu
