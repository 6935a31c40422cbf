#include "profiler/measure/shares.hpp"

namespace sluice::profiler {

using engine::check_cuda;

Share::Share(CUdevice device, unsigned sms) {
  int all = 0;
  SLUICE_CUDA(cuDeviceGetAttribute(&all, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device));
  whole_ = sms == 0 || sms >= static_cast<unsigned>(all);
  if (whole_) {
    SLUICE_CUDA(cuCtxGetCurrent(&context_));
    sms_ = static_cast<unsigned>(all);
    stream_ = engine::make_stream();
  } else {
    split(device, sms);
  }
}

void Share::split(CUdevice device, unsigned sms) {
  CUdevResource whole{};
  CUdevResource part{};
  CUdevResourceDesc description = nullptr;
  unsigned groups = 1;
  check_cuda(SLUICE_OPTIONAL(cuDeviceGetDevResource)(device, &whole, CU_DEV_RESOURCE_TYPE_SM),
             "cuDeviceGetDevResource");
  check_cuda(SLUICE_OPTIONAL(cuDevSmResourceSplitByCount)(&part, &groups, &whole, nullptr, 0, sms),
             "cuDevSmResourceSplitByCount");
  check_cuda(SLUICE_OPTIONAL(cuDevResourceGenerateDesc)(&description, &part, 1),
             "cuDevResourceGenerateDesc");
  check_cuda(
      SLUICE_OPTIONAL(cuGreenCtxCreate)(&green_, description, device, CU_GREEN_CTX_DEFAULT_STREAM),
      "cuGreenCtxCreate");
  check_cuda(SLUICE_OPTIONAL(cuCtxFromGreenCtx)(&context_, green_), "cuCtxFromGreenCtx");
  CUstream stream = nullptr;
  check_cuda(SLUICE_OPTIONAL(cuGreenCtxStreamCreate)(&stream, green_, CU_STREAM_NON_BLOCKING, 0),
             "cuGreenCtxStreamCreate");
  stream_ = engine::CudaStream(stream);
  sms_ = part.sm.smCount;
}

Share::~Share() {
  stream_ = engine::CudaStream();
  if (green_ != nullptr) SLUICE_OPTIONAL(cuGreenCtxDestroy)(green_);
}

}  // namespace sluice::profiler
