#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace sluice::simgpu {

// Memory that a stream frees: it is in use until the stream has done what came before. The memory
// goes back to the device at a later call, as from a pool without a release threshold.
class AsyncMemory {
 public:
  explicit AsyncMemory(std::function<void(std::uint64_t address)> free) : free_(std::move(free)) {}

  // unused: whether the stream has done what came before.
  void free_after(std::uint64_t address, std::function<bool()> unused);
  void free_what_is_unused();
  // Whether a stream will free it. Its program must not free it again.
  [[nodiscard]] bool is_freed(std::uint64_t address);

 private:
  struct Pending {
    std::uint64_t address = 0;
    std::function<bool()> unused;
  };
  const std::function<void(std::uint64_t address)> free_;
  std::mutex mutex_;
  std::vector<Pending> pending_;
};

}  // namespace sluice::simgpu
