#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "simgpu/driver/api.hpp"

namespace sluice::simgpu {

struct Stream;

// Memory that a stream frees: it is in use until the stream has done what came before. The memory
// goes back to the device at a later call, as from a pool without a release threshold.
class AsyncMemory {
 public:
  void free_after(std::shared_ptr<Stream> stream, std::uint64_t sequence, std::uint64_t address);
  void free_what_is_unused();

 private:
  struct Pending {
    std::shared_ptr<Stream> stream;
    std::uint64_t sequence = 0;
    std::uint64_t address = 0;
  };
  std::mutex mutex_;
  std::vector<Pending> pending_;
};

}  // namespace sluice::simgpu
