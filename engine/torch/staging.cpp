#include "engine/torch/staging.hpp"

#include <ATen/Functions.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/torch/batch_tensors.hpp"

namespace sluice::engine {

StagingPool::StagingPool(c10::DataPtr memory, std::size_t place_bytes, std::size_t count)
    : memory_(std::move(memory)), place_bytes_(place_bytes) {
  auto* const begin = static_cast<std::byte*>(memory_.get());
  for (std::size_t i = 0; i < count; ++i) free_.push_back(begin + i * place_bytes);
}

std::shared_ptr<const void> StagingPool::stage(std::vector<Tensor>& inputs) {
  const bool fit = std::ranges::all_of(
      inputs, [&](const Tensor& input) { return input.data.size() <= place_bytes_; });
  std::vector<std::byte*> places;
  {
    const std::lock_guard lock(mutex_);
    if (!fit || free_.size() < inputs.size()) return nullptr;
    const auto first = free_.end() - static_cast<std::ptrdiff_t>(inputs.size());
    places.assign(first, free_.end());
    free_.erase(first, free_.end());
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::span<const std::byte>& data = inputs[i].data;
    std::memcpy(places[i], data.data(), data.size());
    data = {places[i], data.size()};
  }
  return {places.front(),
          [pool = shared_from_this(), places](const void*) { pool->give_back(places); }};
}

void StagingPool::give_back(const std::vector<std::byte*>& places) {
  const std::lock_guard lock(mutex_);
  free_.insert(free_.end(), places.begin(), places.end());
}

std::shared_ptr<StagingPool> pinned_pool(const Specs& specs, std::size_t max_items) {
  constexpr std::size_t kBytes = 32 << 20;  // of a model, if it needs so much
  constexpr std::size_t kFewest = 2;        // one runs while the next one arrives
  constexpr std::size_t kMost = 64;
  constexpr std::size_t kAlignment = 256;
  std::size_t place = 0;
  for (const TensorSpec& spec : specs) {
    const auto elements = element_count(spec.shape);
    if (!elements) return nullptr;
    const std::size_t bytes = max_items * *elements * size_of(spec.type);
    place = std::max(place, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  }
  if (place == 0) return nullptr;
  const std::size_t request = place * specs.size();
  const std::size_t count = std::clamp(kBytes / request, kFewest, kMost) * specs.size();
  return std::make_shared<StagingPool>(at::getHostAllocator(at::kCUDA)->allocate(count * place),
                                       place, count);
}

Tensors pack_on_gpu(const Specs& specs, std::span<const std::vector<Tensor>> requests,
                    std::size_t rows, const c10::Device& device) {
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();
  Tensors packed;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    std::vector<std::int64_t> shape = requests[0][i].shape;
    shape[0] = static_cast<std::int64_t>(rows);
    packed.push_back(
        at::empty(shape, at::TensorOptions().dtype(to_torch(specs[i].type)).device(device)));
    auto* to = static_cast<std::byte*>(packed.back().mutable_data_ptr());
    const auto* const end = to + packed.back().nbytes();
    for (const std::vector<Tensor>& inputs : requests) {
      const std::span<const std::byte> data = inputs[i].data;
      C10_CUDA_CHECK(cudaMemcpyAsync(to, data.data(), data.size(), cudaMemcpyHostToDevice, stream));
      to += data.size();
    }
    // What an earlier batch left in this memory must not reach the model.
    if (to != end) {
      C10_CUDA_CHECK(cudaMemsetAsync(to, 0, static_cast<std::size_t>(end - to), stream));
    }
  }
  return packed;
}

}  // namespace sluice::engine
