#include "engine/torch/gpu_stream.hpp"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContextLight.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <mutex>

#include "engine/torch/stream_capture.hpp"

namespace sluice::engine {
namespace {

std::atomic<bool> context_is_lost{false};

c10::cuda::CUDAStream new_stream(const c10::Device& device) {
  const c10::cuda::CUDAGuard on(device);
  cudaStream_t stream = nullptr;
  C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return c10::cuda::getStreamFromExternal(stream, device.index());
}

/// LibTorch keeps a cuBLAS workspace of some MiB for each stream that was ever used.
void forget_workspaces(at::cuda::WorkspaceMapWithMutex& workspaces, cudaStream_t stream) {
  const std::unique_lock lock(workspaces.mutex);
  std::erase_if(workspaces.map,
                [stream](const auto& entry) { return std::get<1>(entry.first) == stream; });
}

}  // namespace

GpuStream::GpuStream(const c10::Device& device) : stream_(new_stream(device)) {}

GpuStream::~GpuStream() {
  try {
    wait();
    forget_workspaces(at::cuda::cublas_handle_stream_to_workspace(), stream_.stream());
    forget_workspaces(at::cuda::cublaslt_handle_stream_to_workspace(), stream_.stream());
    release_unused_memory();
  } catch (const std::exception&) {
    // Only a lost context gets here. The end of the process frees everything.
  }
  static_cast<void>(cudaStreamDestroy(stream_.stream()));
}

bool GpuStream::is_lost() const {
  const cudaError_t state = cudaStreamQuery(stream_.stream());
  static_cast<void>(cudaGetLastError());
  const bool lost = state != cudaSuccess && state != cudaErrorNotReady;
  if (lost) context_is_lost = true;
  return lost;
}

bool context_lost() noexcept { return context_is_lost; }

void release_unused_memory() {
  const std::lock_guard no_capture(graph_changes());
  c10::cuda::CUDACachingAllocator::emptyCache();
  at::getHostAllocator(at::kCUDA)->empty_cache();
}

}  // namespace sluice::engine
