#include "simgpu/driver/launch.hpp"

#include <cstring>

#include "simgpu/driver/driver.hpp"
#include "simgpu/driver/enqueue.hpp"

namespace sluice::simgpu {
namespace {

// The first 8 bytes of the arguments; null: there are none.
const void* first_argument(void** parameters, void** extra) {
  if (parameters != nullptr) return parameters[0];
  const void* buffer = nullptr;
  std::size_t size = 0;
  for (void** at = extra; at != nullptr && *at != CU_LAUNCH_PARAM_END; at += 2) {
    if (*at == CU_LAUNCH_PARAM_BUFFER_POINTER) buffer = at[1];
    if (*at == CU_LAUNCH_PARAM_BUFFER_SIZE) size = *static_cast<const std::size_t*>(at[1]);
  }
  return size >= sizeof(std::uint64_t) ? buffer : nullptr;
}

}  // namespace

CUresult kernel_work(const Function& function, void** parameters, void** extra, Work& work) {
  if (parameters != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  work.op = Op::kKernel;
  work.index = function.name_index;
  work.a = kDefaultKernelNs;
  if (!function.length_in_argument) return CUDA_SUCCESS;
  const void* argument = first_argument(parameters, extra);
  if (argument == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(&work.a, argument, sizeof work.a);
  return CUDA_SUCCESS;
}

}  // namespace sluice::simgpu

using namespace sluice::simgpu;

namespace {

bool valid_shape(std::uint64_t gx, std::uint64_t gy, std::uint64_t gz, std::uint64_t bx,
                 std::uint64_t by, std::uint64_t bz) {
  const std::uint64_t threads = bx * by * bz;
  return gx * gy * gz != 0 && threads != 0 && bx <= 1024 && by <= 1024 && bz <= 64 &&
         threads <= 1024 && gy <= 65535 && gz <= 65535;
}

CUresult launch(CUfunction f, bool shape_is_valid, CUstream hStream, void** parameters,
                void** extra) {
  return with_context([&](Context&) {
    const std::shared_ptr<Function> function = driver().functions.find(f);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    if (!shape_is_valid) return CUDA_ERROR_INVALID_VALUE;
    Work work;
    const CUresult status = kernel_work(*function, parameters, extra, work);
    if (status != CUDA_SUCCESS) return status;
    return with_stream(hStream, [&](Stream& stream) {
      return enqueue(stream, CU_GRAPH_NODE_TYPE_KERNEL, {&work, 1});
    });
  });
}

}  // namespace

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int, CUstream hStream, void** kernelParams,
                        void** extra) {
  return launch(f, valid_shape(gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ),
                hStream, kernelParams, extra);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                          void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return launch(f,
                valid_shape(config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                            config->blockDimY, config->blockDimZ),
                config->hStream, kernelParams, extra);
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ, unsigned int,
                                   CUstream hStream, void** kernelParams) {
  return launch(f, valid_shape(gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ),
                hStream, kernelParams, nullptr);
}
