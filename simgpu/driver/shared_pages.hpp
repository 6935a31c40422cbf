#pragma once

#include <cstdint>

#include "base/fd.hpp"

namespace sluice::simgpu {

// The file behind shared memory of this process, with which another process can map the same pages.
struct SharedPages {
  // Empty for private memory, or if the file cannot be opened again. For reading if this process
  // can only read the memory.
  base::Fd file;
  std::uint64_t offset = 0;
};
SharedPages find_shared_pages(std::uint64_t address, std::uint64_t bytes);

// Whether this process may write to all of the memory.
bool is_writable(std::uint64_t address, std::uint64_t bytes);

}  // namespace sluice::simgpu
