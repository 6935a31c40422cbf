// The parts of a client's memory that the GPU may touch.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/fd.hpp"
#include "simgpu/channel/mapping.hpp"

namespace sluice::simgpu {

// The memory of one client, by the client's addresses. Memory that came with a file is mapped. All
// other memory is read and written with process_vm_readv() and process_vm_writev(), which cost a
// system call per access and are refused for the memory of another user's process.
class AddressSpace {
 public:
  explicit AddressSpace(pid_t pid) : pid_(pid) {}

  bool map(std::uint64_t address, std::size_t bytes, std::uint64_t offset, const base::Fd& file);
  void unmap(std::uint64_t address);
  // Whether this process may read the client's private memory, which has a byte at `address`.
  [[nodiscard]] bool reaches(std::uint64_t address) const;

  // Reads or writes an aligned word of 4 or 8 bytes in one access. Returns false if the memory does
  // not exist.
  bool load(std::uint64_t address, unsigned width, std::uint64_t& value);
  bool store(std::uint64_t address, unsigned width, std::uint64_t value);

  bool copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes);
  bool fill(std::uint64_t to, std::uint64_t value, unsigned width, std::uint64_t count);

 private:
  struct Region {
    std::uint64_t bytes = 0;
    Mapping mapping;
    std::size_t skew = 0;  // offset of the first byte in the mapping, which starts at a page
  };
  enum class Access { kRead, kWrite };
  struct Found {
    std::byte* at = nullptr;  // null if the memory came without a file
    bool allowed = true;
  };
  [[nodiscard]] Found find(std::uint64_t address, std::uint64_t bytes, Access access) const;
  bool read(std::uint64_t address, void* out, std::size_t bytes) const;
  bool write(std::uint64_t address, const void* in, std::size_t bytes) const;

  pid_t pid_;
  std::map<std::uint64_t, Region> regions_;
};

// After this call, a file that is truncated under a mapping reads as zeros instead of ending the
// process.
void survive_truncated_files();

}  // namespace sluice::simgpu
