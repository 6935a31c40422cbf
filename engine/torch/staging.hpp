#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/tensor.hpp"

/// The way of a request's inputs to a GPU. A copy into pinned memory takes milliseconds for a large
/// request, so it is made when the request arrives, and not when the device is free for it.
namespace sluice::engine {

/// Pinned memory for the inputs of waiting requests. All of it is allocated at once: pinning memory
/// takes longer than a copy and holds up the driver's other calls. Thread-safe.
class StagingPool : public std::enable_shared_from_this<StagingPool> {
 public:
  /// `count` places of `place_bytes` bytes in `memory`.
  StagingPool(c10::DataPtr memory, std::size_t place_bytes, std::size_t count);

  /// Copies the data into free places, and lets `inputs` refer to the copy. Returns what keeps the
  /// places, and may outlive the owner of this pool; null: not all inputs have a place, and nothing
  /// has changed.
  [[nodiscard]] std::shared_ptr<const void> stage(std::vector<Tensor>& inputs);

 private:
  void give_back(const std::vector<std::byte*>& places);

  c10::DataPtr memory_;
  std::size_t place_bytes_;
  std::mutex mutex_;  ///< Guards free_.
  std::vector<std::byte*> free_;
};

/// A pool for batches of up to `max_items` items of `specs`. Null if their size is not known.
/// Throws LibTorch's error.
[[nodiscard]] std::shared_ptr<StagingPool> pinned_pool(const std::vector<TensorSpec>& specs,
                                                       std::size_t max_items);

/// The items of all requests as tensors on a GPU with `rows` rows; zeros follow the last item.
/// Asynchronous on the current stream for data in pinned memory, which must live until the stream
/// is done with it. Other data is right too, but slower. Throws LibTorch's error.
[[nodiscard]] std::vector<at::Tensor> pack_on_gpu(const std::vector<TensorSpec>& specs,
                                                  std::span<const std::vector<Tensor>> requests,
                                                  std::size_t rows, const c10::Device& device);

}  // namespace sluice::engine
