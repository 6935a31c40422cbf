#pragma once
#include <cuda.h>

#include <cstdint>
#include <memory>

#include "engine/recording/cuda_objects.hpp"

/// The GPU, or some of its SMs, to run on.
namespace sluice::profiler {

class Share {
 public:
  /// `sms`: at least so many SMs of the device, through a green context. 0, or as many as it has:
  /// all of them, in its primary context, which must be current. Throws base::RunError if the
  /// driver gives no such share.
  Share(CUdevice device, unsigned sms);
  ~Share();
  Share(const Share&) = delete;
  Share& operator=(const Share&) = delete;

  /// How many SMs it really has.
  [[nodiscard]] unsigned sms() const { return sms_; }
  /// Whether it is the whole GPU.
  [[nodiscard]] bool whole() const { return whole_; }
  [[nodiscard]] CUstream stream() const { return stream_.get(); }
  void make_current() const { SLUICE_CUDA(cuCtxSetCurrent(context_)); }

 private:
  void split(CUdevice device, unsigned sms);

  CUcontext context_ = nullptr;
  CUgreenCtx green_ = nullptr;
  unsigned sms_ = 0;
  bool whole_ = false;
  engine::CudaStream stream_;
};

/// An entry of the driver that some drivers lack. Throws base::RunError if this one does.
template <class Function>
[[nodiscard]] Function optional_entry(const char* name) {
  void* found = nullptr;
  CUdriverProcAddressQueryResult why{};
  const CUresult result =
      cuGetProcAddress(name, &found, CUDA_VERSION, CU_GET_PROC_ADDRESS_DEFAULT, &why);
  if (result != CUDA_SUCCESS || found == nullptr) {
    throw base::RunError(std::string("the driver has no ") + name);
  }
  return reinterpret_cast<Function>(found);
}

}  // namespace sluice::profiler

/// SLUICE_OPTIONAL(cuX): the entry as a function.
#define SLUICE_OPTIONAL(entry) ::sluice::profiler::optional_entry<decltype(&::entry)>(#entry)
