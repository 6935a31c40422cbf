#include "engine/memory/pages.hpp"

#include <algorithm>

namespace sluice::engine {
namespace {

CUmemAllocationProp properties(const DeviceContext& context) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = context.device();
  return wanted;
}

}  // namespace

std::vector<std::uint64_t> page_sizes(std::uint64_t bytes, std::uint64_t granularity) {
  const std::uint64_t largest =
      std::max(kLargestPage / granularity, std::uint64_t{1}) * granularity;
  std::vector<std::uint64_t> sizes(bytes / largest, largest);
  if (bytes % largest != 0) sizes.push_back(bytes % largest);
  return sizes;
}

std::uint64_t Pages::granularity(const DeviceContext& context) {
  const CUmemAllocationProp wanted = properties(context);
  std::size_t bytes = 0;
  SLUICE_DRIVER(context.driver(), cuMemGetAllocationGranularity(
                                      &bytes, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  return bytes;
}

Pages::Pages(std::shared_ptr<const DeviceContext> context, CUdeviceptr address, std::uint64_t bytes)
    : context_(std::move(context)), address_(address) {
  try {
    map(bytes);
  } catch (const std::exception&) {
    give_back();
    throw;
  }
}

Pages::~Pages() { give_back(); }

void Pages::map(std::uint64_t bytes) {
  const MemoryDriver& driver = context_->driver();
  const CUmemAllocationProp wanted = properties(*context_);
  CUdeviceptr at = address_;
  for (const std::uint64_t size : page_sizes(bytes, granularity(*context_))) {
    CUmemGenericAllocationHandle handle{};
    SLUICE_DRIVER(driver, cuMemCreate(&handle, size, &wanted, 0));
    pages_.push_back({handle, size, false});
    SLUICE_DRIVER(driver, cuMemMap(at, size, 0, handle, 0));
    pages_.back().mapped = true;
    at += size;
  }
  const CUmemAccessDesc access{wanted.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  SLUICE_DRIVER(driver, cuMemSetAccess(address_, bytes, &access, 1));
}

/// A failure to give back is ignored: it only comes with a lost context, whose memory the end of
/// the process frees.
void Pages::give_back() {
  CUdeviceptr at = address_;
  for (const Page& page : pages_) {
    if (page.mapped) context_->driver().cuMemUnmap(at, page.bytes);
    context_->driver().cuMemRelease(page.handle);
    at += page.bytes;
  }
  pages_.clear();
}

}  // namespace sluice::engine
