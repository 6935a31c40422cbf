#pragma once
#include <cuda.h>

#include <cstddef>
#include <memory>
#include <utility>

#include "engine/recording/cuda_call.hpp"

namespace sluice::engine {

/// Owner of a driver handle. Ignores a failure to destroy, which nobody could handle.
template <class Handle, CUresult (*Destroy)(Handle)>
class CudaObject {
 public:
  CudaObject() = default;
  explicit CudaObject(Handle handle) : handle_(handle) {}
  CudaObject(CudaObject&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  CudaObject& operator=(CudaObject&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  CudaObject(const CudaObject&) = delete;
  CudaObject& operator=(const CudaObject&) = delete;
  ~CudaObject() {
    if (handle_ != nullptr) Destroy(handle_);
  }
  [[nodiscard]] Handle get() const { return handle_; }
  /// From now on nobody destroys the handle.
  void release() { handle_ = nullptr; }

 private:
  Handle handle_ = nullptr;
};

using CudaModule = CudaObject<CUmodule, cuModuleUnload>;
using CudaStream = CudaObject<CUstream, cuStreamDestroy>;
using CudaEvent = CudaObject<CUevent, cuEventDestroy>;
using CudaGraph = CudaObject<CUgraph, cuGraphDestroy>;
using CudaGraphExec = CudaObject<CUgraphExec, cuGraphExecDestroy>;

struct FreePinned {
  void operator()(void* memory) const { cuMemFreeHost(memory); }
};
/// Page-locked host memory, to which a GPU copies asynchronously.
template <class Number>
using Pinned = std::unique_ptr<Number, FreePinned>;

template <class Number>
[[nodiscard]] Pinned<Number> make_pinned(std::size_t count) {
  void* memory = nullptr;
  SLUICE_CUDA(cuMemHostAlloc(&memory, count * sizeof(Number), 0));
  return Pinned<Number>(static_cast<Number*>(memory));
}

/// Device memory.
class CudaMemory {
 public:
  explicit CudaMemory(CUdeviceptr address) : address_(address) {}
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;
  ~CudaMemory() { cuMemFree(address_); }
  [[nodiscard]] CUdeviceptr get() const { return address_; }

 private:
  CUdeviceptr address_;
};

/// The primary context of a device, current in the thread that created this object.
class CudaContext {
 public:
  explicit CudaContext(int index) {
    SLUICE_CUDA(cuInit(0));
    SLUICE_CUDA(cuDeviceGet(&device_, index));
    SLUICE_CUDA(cuDevicePrimaryCtxRetain(&context_, device_));
    make_current();
  }
  CudaContext(const CudaContext&) = delete;
  CudaContext& operator=(const CudaContext&) = delete;
  ~CudaContext() {
    if (context_ != nullptr) cuDevicePrimaryCtxRelease(device_);
  }

  void make_current() const { SLUICE_CUDA(cuCtxSetCurrent(context_)); }

  [[nodiscard]] int attribute(CUdevice_attribute which) const {
    int value = 0;
    SLUICE_CUDA(cuDeviceGetAttribute(&value, which, device_));
    return value;
  }

 private:
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

[[nodiscard]] inline CudaStream make_stream() {
  CUstream stream = nullptr;
  SLUICE_CUDA(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  return CudaStream(stream);
}

[[nodiscard]] inline CudaEvent make_event() {
  CUevent event = nullptr;
  SLUICE_CUDA(cuEventCreate(&event, CU_EVENT_DEFAULT));
  return CudaEvent(event);
}

}  // namespace sluice::engine
