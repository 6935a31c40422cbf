#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <span>
#include <vector>

#include "engine/tensor.hpp"

/// The way of a request's inputs to a GPU. A copy into pinned memory takes milliseconds for a large
/// request, so it is made when the request arrives, and not when the device is free for it.
namespace sluice::engine {

/// Copies the data into pinned memory, and lets `inputs` refer to the copy. Returns what keeps the
/// copy alive. Throws LibTorch's error.
[[nodiscard]] std::shared_ptr<const void> stage_pinned(std::vector<Tensor>& inputs);

/// The items of all requests as one tensor on a GPU with `rows` rows; zeros follow the last item.
/// Asynchronous on the current stream for data in pinned memory, which must live until the stream
/// is done with it. Other data is right too, but slower. Throws LibTorch's error.
[[nodiscard]] at::Tensor pack_on_gpu(const TensorSpec& spec,
                                     std::span<const std::vector<Tensor>> requests,
                                     std::size_t rows, const c10::Device& device);

}  // namespace sluice::engine
