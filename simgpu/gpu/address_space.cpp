#include "simgpu/gpu/address_space.hpp"

#include <signal.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

namespace sluice::simgpu {
namespace {

constexpr std::uint64_t kPage = 4096;

// A client may write any command: no command may end the process that serves the other clients.
bool is_word(unsigned width) { return width == 4 || width == 8; }

void replace_lost_page(int, siginfo_t* info, void*) {
  const auto page = reinterpret_cast<std::uintptr_t>(info->si_addr) & ~(kPage - 1);
  void* at = mmap(reinterpret_cast<void*>(page), kPage, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (at == MAP_FAILED) _exit(1);
}

}  // namespace

void survive_truncated_files() {
  struct sigaction action {};
  action.sa_sigaction = replace_lost_page;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

bool AddressSpace::map(std::uint64_t address, std::size_t bytes, std::uint64_t offset,
                       const base::Fd& file) {
  Region region;
  region.bytes = bytes;
  if (file) {
    region.skew = offset % kPage;
    if (bytes > std::numeric_limits<std::size_t>::max() - region.skew) return false;
    region.mapping =
        Mapping(file.get(), bytes + region.skew, static_cast<off_t>(offset - region.skew));
    if (!region.mapping) return false;
  }
  regions_.insert_or_assign(address, std::move(region));
  return true;
}

void AddressSpace::unmap(std::uint64_t address) { regions_.erase(address); }

bool AddressSpace::reaches(std::uint64_t address) const {
  char byte = 0;
  return read(address, &byte, sizeof byte);
}

AddressSpace::Found AddressSpace::find(std::uint64_t address, std::uint64_t bytes,
                                       Access access) const {
  auto next = regions_.upper_bound(address);
  if (next == regions_.begin()) return {};
  const auto& [start, region] = *std::prev(next);
  const std::uint64_t within = address - start;
  if (!region.mapping || within > region.bytes || bytes > region.bytes - within) return {};
  if (access == Access::kWrite && !region.mapping.writable()) return {nullptr, false};
  return {static_cast<std::byte*>(region.mapping.get()) + region.skew + within};
}

bool AddressSpace::load(std::uint64_t address, unsigned width, std::uint64_t& value) {
  if (!is_word(width)) return false;
  if (const std::byte* at = find(address, width, Access::kRead).at) {
    value = width == 8
                ? __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at), __ATOMIC_ACQUIRE)
                : __atomic_load_n(reinterpret_cast<const std::uint32_t*>(at), __ATOMIC_ACQUIRE);
    return true;
  }
  value = 0;
  return read(address, &value, width);
}

bool AddressSpace::store(std::uint64_t address, unsigned width, std::uint64_t value) {
  if (!is_word(width)) return false;
  const Found found = find(address, width, Access::kWrite);
  if (!found.allowed) return false;
  if (std::byte* at = found.at) {
    if (width == 8) {
      __atomic_store_n(reinterpret_cast<std::uint64_t*>(at), value, __ATOMIC_RELEASE);
    } else {
      __atomic_store_n(reinterpret_cast<std::uint32_t*>(at), static_cast<std::uint32_t>(value),
                       __ATOMIC_RELEASE);
    }
    return true;
  }
  return write(address, &value, width);
}

bool AddressSpace::read(std::uint64_t address, void* out, std::size_t bytes) const {
  if (const std::byte* at = find(address, bytes, Access::kRead).at) {
    std::memcpy(out, at, bytes);
    return true;
  }
  const iovec local{out, bytes};
  const iovec remote{reinterpret_cast<void*>(address), bytes};
  return process_vm_readv(pid_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

bool AddressSpace::write(std::uint64_t address, const void* in, std::size_t bytes) const {
  const Found found = find(address, bytes, Access::kWrite);
  if (!found.allowed) return false;
  if (std::byte* at = found.at) {
    std::memcpy(at, in, bytes);
    return true;
  }
  const iovec local{const_cast<void*>(in), bytes};
  const iovec remote{reinterpret_cast<void*>(address), bytes};
  return process_vm_writev(pid_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

bool AddressSpace::copy(std::uint64_t to, std::uint64_t from, std::uint64_t bytes) {
  std::byte* target = find(to, bytes, Access::kWrite).at;
  const std::byte* source = find(from, bytes, Access::kRead).at;
  if (target != nullptr && source != nullptr) {
    std::memmove(target, source, bytes);
    return true;
  }
  std::array<std::byte, 65536> buffer;
  for (std::uint64_t done = 0; done < bytes;) {
    const std::size_t part = std::min<std::uint64_t>(buffer.size(), bytes - done);
    if (!read(from + done, buffer.data(), part) || !write(to + done, buffer.data(), part)) {
      return false;
    }
    done += part;
  }
  return true;
}

bool AddressSpace::fill(std::uint64_t to, std::uint64_t value, unsigned width,
                        std::uint64_t count) {
  if (width == 0 || width > 8) return false;
  std::array<std::byte, 65536> buffer;
  const std::uint64_t in_buffer = buffer.size() / width;
  for (std::uint64_t i = 0; i < std::min(in_buffer, count); ++i) {
    std::memcpy(&buffer.at(i * width), &value, width);
  }
  for (std::uint64_t done = 0; done < count;) {
    const std::uint64_t part = std::min(in_buffer, count - done);
    if (!write(to + done * width, buffer.data(), part * width)) return false;
    done += part;
  }
  return true;
}

}  // namespace sluice::simgpu
