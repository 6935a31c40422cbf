#pragma once

#include <fcntl.h>
#include <sys/mman.h>

#include <cstddef>
#include <utility>

namespace sluice::simgpu {

// Owner of a shared mapping of a file: for reading only if the file is open for reading only.
class Mapping {
 public:
  Mapping() = default;
  Mapping(int fd, std::size_t bytes, off_t offset)
      : bytes_(bytes), writable_((fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR) {
    const int access = PROT_READ | (writable_ ? PROT_WRITE : 0);
    void* at = mmap(nullptr, bytes, access, MAP_SHARED | MAP_NORESERVE, fd, offset);
    if (at != MAP_FAILED) address_ = at;
  }
  Mapping(Mapping&& other) noexcept
      : address_(std::exchange(other.address_, nullptr)),
        bytes_(other.bytes_),
        writable_(other.writable_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    std::swap(writable_, other.writable_);
    return *this;
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (address_ != nullptr) munmap(address_, bytes_);
  }

  [[nodiscard]] void* get() const { return address_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] bool writable() const { return writable_; }
  explicit operator bool() const { return address_ != nullptr; }

 private:
  void* address_ = nullptr;
  std::size_t bytes_ = 0;
  bool writable_ = false;
};

}  // namespace sluice::simgpu
