#include "engine/torch/cuda_device.hpp"

#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.hpp"

namespace sluice::engine {

void use_gpu(const c10::Device& device) {
  const int count = c10::cuda::device_count();
  if (device.index() >= count) {
    throw base::RunError(
        fmt::format("LibTorch {} finds {} GPUs, so there is no GPU {}; is the driver too "
                    "old for its CUDA?",
                    SLUICE_TORCH_VERSION, count, device.index()));
  }
  c10::cuda::set_device(device.index());
}

void use_side_stream() { c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool()); }

void synchronise_stream() { c10::cuda::getCurrentCUDAStream().synchronize(); }

int gpu_count() { return c10::cuda::device_count(); }

std::string gpu_arch(const c10::Device& device) {
  const auto* properties = at::cuda::getDeviceProperties(device.index());
  return fmt::format("sm_{}{}", properties->major, properties->minor);
}

Backend::Memory peak_gpu_memory(const c10::Device& device) {
  using c10::CachingAllocator::StatType;
  constexpr auto kAll = static_cast<std::size_t>(StatType::AGGREGATE);
  const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(device.index());
  return {static_cast<std::uint64_t>(stats.allocated_bytes[kAll].peak),
          static_cast<std::uint64_t>(stats.reserved_bytes[kAll].peak)};
}

std::string loaded_torch_library() {
  Dl_info info{};
  const auto symbol = reinterpret_cast<void*>(&c10::cuda::device_count);
  return dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

}  // namespace sluice::engine
