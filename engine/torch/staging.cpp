#include "engine/torch/staging.hpp"

#include <ATen/Functions.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <cstring>

#include "engine/torch/batch_tensors.hpp"

namespace sluice::engine {

std::shared_ptr<const void> stage_pinned(std::vector<Tensor>& inputs) {
  auto copies = std::make_shared<std::vector<at::DataPtr>>();
  for (const Tensor& input : inputs) {
    copies->push_back(at::getHostAllocator(at::kCUDA)->allocate(input.data.size()));
    std::memcpy(copies->back().get(), input.data.data(), input.data.size());
  }
  // Only now: nothing throws any more.
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i].data = {static_cast<const std::byte*>((*copies)[i].get()), inputs[i].data.size()};
  }
  return copies;
}

at::Tensor pack_on_gpu(const TensorSpec& spec, std::span<const std::vector<Tensor>> requests,
                       std::size_t rows, const c10::Device& device) {
  std::vector<std::int64_t> shape = requests[0][0].shape;
  shape[0] = static_cast<std::int64_t>(rows);
  at::Tensor batch =
      at::empty(shape, at::TensorOptions().dtype(to_torch(spec.type)).device(device));
  const cudaStream_t stream = c10::cuda::getCurrentCUDAStream(device.index()).stream();
  auto* to = static_cast<std::byte*>(batch.mutable_data_ptr());
  const auto* const end = to + batch.nbytes();
  for (const std::vector<Tensor>& inputs : requests) {
    const std::span<const std::byte> data = inputs[0].data;
    C10_CUDA_CHECK(cudaMemcpyAsync(to, data.data(), data.size(), cudaMemcpyHostToDevice, stream));
    to += data.size();
  }
  // What an earlier batch left in this memory must not reach the model.
  if (to != end) {
    C10_CUDA_CHECK(cudaMemsetAsync(to, 0, static_cast<std::size_t>(end - to), stream));
  }
  return batch;
}

}  // namespace sluice::engine
