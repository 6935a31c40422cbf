#include "engine/torch/train/release.hpp"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace sluice::engine {
namespace {

namespace allocator = c10::cuda::CUDACachingAllocator;

/// The unit in which an expandable segment gives memory back.
std::size_t page_bytes() {
  return c10::CachingAllocator::AcceleratorAllocatorConfig::large_segment_size();
}
constexpr int kPageMib = 64;  ///< That we ask for.
constexpr std::size_t kPagesOfALargePart = 8;
/// Two are enough where little is in small blocks.
constexpr int kRounds = 3;

struct Held {
  std::uint64_t all = 0;
  std::uint64_t unused = 0;
};

Held held_by_allocator(const c10::Device& device) {
  constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  const auto stats = allocator::getDeviceStats(device.index());
  const auto all = static_cast<std::uint64_t>(stats.reserved_bytes[kAll].current);
  return {all, all - static_cast<std::uint64_t>(stats.allocated_bytes[kAll].current)};
}

/// Sizes of the unused blocks that an allocation on the current stream may take.
std::vector<std::size_t> unused_blocks(const c10::Device& device) {
  std::vector<std::size_t> sizes;
  const auto stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();
  const std::size_t page = page_bytes();
  for (const auto& segment : allocator::snapshot().segments) {
    const bool usable = segment.device == device.index() && segment.is_large &&
                        segment.stream == stream &&
                        segment.owner_private_pool_id == c10::MempoolId_t{0, 0};
    for (const auto& block : segment.blocks) {
      if (usable && !block.allocated && !block.active && block.size >= page) {
        sizes.push_back(block.size);
      }
    }
  }
  return sizes;
}

/// Memory that is in use while the rest is given back: `bytes` or less.
class Kept {
 public:
  /// In parts of two sizes: whichever blocks the allocator takes them from, as many fit as the
  /// sizes of the blocks say. An allocation that does not fit would free all that is cached first.
  /// Small blocks are kept whole, as far as that goes: of a large one, the rest can be given back
  /// nearly whole.
  Kept(std::uint64_t bytes, const c10::Device& device) {
    const std::size_t page = page_bytes();
    const std::size_t large_part = kPagesOfALargePart * page;
    std::uint64_t small = 0;       // pages in small blocks
    std::uint64_t most_large = 0;  // large parts that fit
    std::uint64_t rests = 0;       // pages in large blocks next to all of these
    for (const std::size_t size : unused_blocks(device)) {
      (size < large_part ? small : rests) += size % large_part / page;
      most_large += size / large_part;
    }
    const std::uint64_t wanted = bytes - std::min(bytes, small * page);
    const std::uint64_t large = std::min(most_large, wanted / large_part);
    if (large < most_large) rests = kPagesOfALargePart;
    const std::uint64_t pages = std::min(small + rests, (bytes - large * large_part) / page);
    try {
      for (std::uint64_t i = 0; i < large; ++i) parts_.push_back(allocator::raw_alloc(large_part));
      for (std::uint64_t i = 0; i < pages; ++i) parts_.push_back(allocator::raw_alloc(page));
    } catch (const c10::OutOfMemoryError&) {
      // More is given back.
    }
  }
  Kept(const Kept&) = delete;
  Kept& operator=(const Kept&) = delete;
  ~Kept() {
    for (void* const part : parts_) allocator::raw_delete(part);
  }

 private:
  std::vector<void*> parts_;
};

}  // namespace

std::string allocator_settings(const std::string& said) {
  const std::string own = "large_segment_size_mb";
  const std::string users = said.empty() ? "expandable_segments:True" : said;
  if (!c10::CachingAllocator::AcceleratorAllocatorConfig::getKeys().contains(own)) return users;
  // In front: of two values the last counts, and LibTorch accepts a comma at the end, but no two.
  return fmt::format("{}:{},{}", own, kPageMib, users);
}

void release_down_to(std::uint64_t most, const c10::Device& device) {
  // Bytes of unused memory that cannot be given back: small blocks, and parts of pages.
  std::uint64_t stuck = 0;
  for (int round = 0; round < kRounds; ++round) {
    const Held held = held_by_allocator(device);
    if (held.all <= most) return;
    const std::uint64_t to_give = held.all - most + stuck + 2 * page_bytes();
    const Kept kept(held.unused > to_give ? held.unused - to_give : 0, device);
    allocator::emptyCache();
    stuck = held_by_allocator(device).unused;
  }
  if (held_by_allocator(device).all > most) allocator::emptyCache();
}

}  // namespace sluice::engine
