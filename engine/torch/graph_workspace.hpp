#pragma once
#include <ATen/cuda/CUDAEvent.h>
#include <c10/core/Device.h>

#include <memory>
#include <mutex>

#include "engine/torch/gpu_stream.hpp"

namespace sluice::engine {

/// The memory in which CUDA graphs compute: activations, and cuBLAS' workspace of 32 MiB. Graphs
/// that never run at once may use the same memory, so models that take turns share one workspace.
/// Without that, every model would keep 50 to 80 MiB of a GPU, also when its weights are evicted.
class GraphWorkspace {
 public:
  explicit GraphWorkspace(const c10::Device& device);
  /// That of all models of the device; it is freed with the last of them.
  [[nodiscard]] static std::shared_ptr<GraphWorkspace> shared(const c10::Device& device);

  /// All graphs are captured on this stream, because LibTorch reuses memory only within a stream.
  [[nodiscard]] const GpuStream& stream() const { return stream_; }
  [[nodiscard]] const at::cuda::MempoolId_t& pool() const { return pool_; }
  /// Held while a model warms up and is captured: a capture would record what another thread
  /// launches on the stream.
  [[nodiscard]] std::mutex& loading() { return loading_; }

  /// The launch of graphs on a stream: the GPU runs them after those of earlier turns.
  class Lock {
   public:
    Lock(GraphWorkspace& workspace, const GpuStream& stream);
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    ~Lock();

   private:
    GraphWorkspace& workspace_;
    const GpuStream& stream_;
    std::lock_guard<std::mutex> lock_;
  };

 private:
  GpuStream stream_;
  at::cuda::MempoolId_t pool_;
  std::mutex loading_;
  std::mutex turns_;
  at::cuda::CUDAEvent last_turn_;
};

}  // namespace sluice::engine
