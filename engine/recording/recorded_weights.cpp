#include "engine/recording/recorded_weights.hpp"

#include <fmt/format.h>

#include <cstring>
#include <functional>

namespace sluice::engine {
namespace {

constexpr std::uint64_t kNumber = sizeof(std::uint64_t);

/// Where the weights of each block end: all blocks have about the same.
std::vector<std::uint64_t> even_ends(std::uint64_t bytes, std::size_t blocks) {
  std::vector<std::uint64_t> ends;
  const std::uint64_t numbers = bytes / kNumber;
  for (std::size_t i = 1; i <= blocks; ++i) ends.push_back(numbers * i / blocks * kNumber);
  return ends;
}

CUdeviceptr allocate(std::uint64_t bytes) {
  CUdeviceptr made = 0;
  SLUICE_CUDA(cuMemAlloc(&made, bytes));
  return made;
}

}  // namespace

std::uint64_t recorded_weight(const std::string& name, std::uint64_t position) {
  // Odd, so that no two positions have the same number.
  const std::uint64_t step = (std::hash<std::string>{}(name) << 1) | 1;
  return (position + 1) * step;
}

RecordedWeights::RecordedWeights(int device, Placement placement, std::uint64_t bytes,
                                 std::size_t blocks, const std::string& name)
    : placement_(placement),
      block_ends_(even_ends(bytes, blocks)),
      weights_(std::make_shared<DeviceContext>(MemoryDriver::loaded(), device), placement,
               block_ends_),
      read_(allocate(numbers() * kNumber)) {
  const std::string key =
      fmt::format("{} with {} bytes of weights in {} blocks", name, bytes, blocks);
  weights_.fill(key, [&](std::span<std::byte> filled) {
    for (std::uint64_t at = 0; at < filled.size(); at += kNumber) {
      const std::uint64_t number = recorded_weight(name, at / kNumber);
      std::memcpy(&filled[at], &number, kNumber);
    }
  });
}

void RecordedWeights::forget(CUstream stream) {
  SLUICE_CUDA(cuMemsetD8Async(read_.get(), 0, numbers() * kNumber, stream));
}

void RecordedWeights::read(CUstream stream, std::size_t block) {
  const std::uint64_t begin = block == 0 ? 0 : block_ends_[block - 1];
  const CUdeviceptr to = read_.get() + block * kPerBlock * kNumber;
  const CUdeviceptr from = weights_.address();
  SLUICE_CUDA(cuMemcpyDtoDAsync(to, from + begin, kNumber, stream));
  SLUICE_CUDA(
      cuMemcpyDtoDAsync(to + kNumber, from + block_ends_[block] - kNumber, kNumber, stream));
}

void RecordedWeights::fetch(CUstream stream, std::uint64_t* to) const {
  SLUICE_CUDA(cuMemcpyDtoHAsync(to, read_.get(), numbers() * kNumber, stream));
}

}  // namespace sluice::engine
