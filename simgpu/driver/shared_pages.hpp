#pragma once

#include <cstdint>

#include "base/fd.hpp"

namespace sluice::simgpu {

// The file behind shared memory of this process, with which another process can map the same pages.
struct SharedPages {
  base::Fd file;  // empty for private memory, or if the file cannot be opened again
  std::uint64_t offset = 0;
};
SharedPages find_shared_pages(std::uint64_t address, std::uint64_t bytes);

}  // namespace sluice::simgpu
