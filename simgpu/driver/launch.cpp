#include "simgpu/driver/launch.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>

#include "simgpu/driver/capture.hpp"
#include "simgpu/driver/driver.hpp"
#include "simgpu/driver/enqueue.hpp"

namespace sluice::simgpu {
namespace {

std::uint64_t blocks_of(const CUDA_KERNEL_NODE_PARAMS& kernel) {
  return std::uint64_t{kernel.gridDimX} * kernel.gridDimY * kernel.gridDimZ;
}

// The first 8 bytes of the arguments; null without arguments.
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

// How many multiprocessors the grid fills, if each has as many blocks as fit: of 64 warps, 32
// blocks and 228 KiB of shared memory on an H200. Registers are not simulated.
std::uint64_t filled_by(const CUDA_KERNEL_NODE_PARAMS& kernel) {
  constexpr std::uint64_t kWarps = 64;
  constexpr std::uint64_t kBlocks = 32;
  constexpr std::uint64_t kShared = 228 * 1024;
  constexpr std::uint64_t kSharedOfSystem = 1024;  // of each block
  const std::uint64_t threads =
      std::uint64_t{kernel.blockDimX} * kernel.blockDimY * kernel.blockDimZ;
  const std::uint64_t warps = (threads + 31) / 32;
  const std::uint64_t fit = std::min({kBlocks, kWarps / std::clamp<std::uint64_t>(warps, 1, kWarps),
                                      kShared / (kernel.sharedMemBytes + kSharedOfSystem)});
  const std::uint64_t each = std::max<std::uint64_t>(fit, 1);
  return std::clamp<std::uint64_t>((blocks_of(kernel) + each - 1) / each, 1, kMultiprocessors);
}

}  // namespace

CUresult kernel_work(const Function& function, const CUDA_KERNEL_NODE_PARAMS& kernel, Work& work) {
  if (kernel.kernelParams != nullptr && kernel.extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
  work.op = Op::kKernel;
  work.index = function.name_index;
  work.a = kDefaultKernelNs;
  work.b = filled_by(kernel);
  if (function.faults) work.flags = kFaults;
  if (!function.length_in_argument) return CUDA_SUCCESS;
  // One block that spins stands for a kernel of any size.
  if (blocks_of(kernel) == 1) work.b = kMultiprocessors;
  const void* argument = first_argument(kernel.kernelParams, kernel.extra);
  if (argument == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(&work.a, argument, sizeof work.a);
  return CUDA_SUCCESS;
}

}  // namespace sluice::simgpu

using namespace sluice::simgpu;

namespace {

bool valid_shape(const CUDA_KERNEL_NODE_PARAMS_v2& kernel) {
  const std::uint64_t blocks = std::uint64_t{kernel.gridDimX} * kernel.gridDimY * kernel.gridDimZ;
  const std::uint64_t threads =
      std::uint64_t{kernel.blockDimX} * kernel.blockDimY * kernel.blockDimZ;
  return blocks != 0 && threads != 0 && threads <= 1024 && kernel.blockDimZ <= 64 &&
         kernel.gridDimY <= 65535 && kernel.gridDimZ <= 65535;
}

// The content of a graph node made from this launch. The argument pointers are valid only during
// the call.
NodeContent node_content(const CUDA_KERNEL_NODE_PARAMS_v2& kernel, const Work& work) {
  NodeContent content = content_of(CU_GRAPH_NODE_TYPE_KERNEL, work);
  content.kernel = kernel;
  content.kernel.kernelParams = nullptr;
  content.kernel.extra = nullptr;
  return content;
}

CUresult launch(CUDA_KERNEL_NODE_PARAMS_v2 kernel, CUstream hStream, bool programmatic) {
  return with_context([&](Context& context) {
    const std::shared_ptr<Function> function = driver().functions.find(kernel.func);
    if (!function) return CUDA_ERROR_INVALID_HANDLE;
    if (!valid_shape(kernel)) return CUDA_ERROR_INVALID_VALUE;
    Work work;
    const CUresult status = kernel_work(*function, kernel, work);
    if (status != CUDA_SUCCESS) return status;
    return with_stream(hStream, [&](Stream& stream) {
      if (!stream.capturing) return submit(stream, {&work, 1});
      kernel.ctx = context.handle;
      NodeContent content = node_content(kernel, work);
      content.programmatic = programmatic;
      return add_captured_node(stream, std::move(content));
    });
  });
}

bool asks_for_programmatic_edge(const CUlaunchConfig& config) {
  for (unsigned i = 0; config.attrs != nullptr && i < config.numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config.attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION &&
        attribute.value.programmaticStreamSerializationAllowed != 0) {
      return true;
    }
  }
  return false;
}

// The setup of a function: `change` gets it, and says what is wrong.
template <class Change>
CUresult change_setup(CUfunction f, Change change) {
  const std::shared_ptr<Function> function = driver().functions.find(f);
  if (!function) return CUDA_ERROR_INVALID_HANDLE;
  const std::lock_guard lock(function->mutex);
  return change(function->setup);
}

CUresult set_parameter(CUfunction f, int offset, const void* value, std::size_t size) {
  if (offset < 0 || value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return change_setup(f, [&](LaunchSetup& setup) {
    if (static_cast<std::size_t>(offset) + size > setup.parameters.size()) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    std::memcpy(setup.parameters.data() + offset, value, size);
    return CUDA_SUCCESS;
  });
}

CUresult launch_as_set_up(CUfunction f, int width, int height, CUstream hStream) {
  if (width <= 0 || height <= 0) return CUDA_ERROR_INVALID_VALUE;
  LaunchSetup setup;
  const CUresult status = change_setup(f, [&](const LaunchSetup& now) {
    setup = now;
    return CUDA_SUCCESS;
  });
  if (status != CUDA_SUCCESS) return status;
  std::size_t size = setup.parameters.size();
  std::array<void*, 5> extra{CU_LAUNCH_PARAM_BUFFER_POINTER, setup.parameters.data(),
                             CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
  return launch({f, static_cast<unsigned>(width), static_cast<unsigned>(height), 1, setup.block[0],
                 setup.block[1], setup.block[2], 0, nullptr, extra.data(), nullptr, nullptr},
                hStream, false);
}

}  // namespace

CUresult cuFuncSetBlockShape(CUfunction hfunc, int x, int y, int z) {
  if (x <= 0 || y <= 0 || z <= 0) return CUDA_ERROR_INVALID_VALUE;
  return change_setup(hfunc, [&](LaunchSetup& setup) {
    setup.block = {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSetSize(CUfunction hfunc, unsigned int numbytes) {
  return change_setup(hfunc, [&](LaunchSetup& setup) {
    setup.parameters.resize(numbytes);
    return CUDA_SUCCESS;
  });
}

CUresult cuParamSeti(CUfunction hfunc, int offset, unsigned int value) {
  return set_parameter(hfunc, offset, &value, sizeof value);
}

CUresult cuParamSetf(CUfunction hfunc, int offset, float value) {
  return set_parameter(hfunc, offset, &value, sizeof value);
}

CUresult cuParamSetv(CUfunction hfunc, int offset, void* ptr, unsigned int numbytes) {
  return set_parameter(hfunc, offset, ptr, numbytes);
}

CUresult cuLaunch(CUfunction f) { return launch_as_set_up(f, 1, 1, nullptr); }

CUresult cuLaunchGrid(CUfunction f, int grid_width, int grid_height) {
  return launch_as_set_up(f, grid_width, grid_height, nullptr);
}

CUresult cuLaunchGridAsync(CUfunction f, int grid_width, int grid_height, CUstream hStream) {
  return launch_as_set_up(f, grid_width, grid_height, hStream);
}

CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS* launchParamsList,
                                              unsigned int numDevices, unsigned int /*flags*/) {
  if (launchParamsList == nullptr || numDevices == 0) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < numDevices; ++i) {
    const CUDA_LAUNCH_PARAMS& one = launchParamsList[i];
    const CUresult status = launch(
        {one.function, one.gridDimX, one.gridDimY, one.gridDimZ, one.blockDimX, one.blockDimY,
         one.blockDimZ, one.sharedMemBytes, one.kernelParams, nullptr, nullptr, nullptr},
        one.hStream, false);
    if (status != CUDA_SUCCESS) return status;
  }
  return CUDA_SUCCESS;
}

CUresult cuLaunchKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                        unsigned int gridDimZ, unsigned int blockDimX, unsigned int blockDimY,
                        unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream,
                        void** kernelParams, void** extra) {
  return launch({f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes,
                 kernelParams, extra, nullptr, nullptr},
                hStream, false);
}

CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction f, void** kernelParams,
                          void** extra) {
  if (config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return launch({f, config->gridDimX, config->gridDimY, config->gridDimZ, config->blockDimX,
                 config->blockDimY, config->blockDimZ, config->sharedMemBytes, kernelParams, extra,
                 nullptr, nullptr},
                config->hStream, asks_for_programmatic_edge(*config));
}

CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned int gridDimX, unsigned int gridDimY,
                                   unsigned int gridDimZ, unsigned int blockDimX,
                                   unsigned int blockDimY, unsigned int blockDimZ,
                                   unsigned int sharedMemBytes, CUstream hStream,
                                   void** kernelParams) {
  return launch({f, gridDimX, gridDimY, gridDimZ, blockDimX, blockDimY, blockDimZ, sharedMemBytes,
                 kernelParams, nullptr, nullptr, nullptr},
                hStream, false);
}

CUresult cuLaunchHostFunc(CUstream hStream, CUhostFn fn, void* userData) {
  return with_stream(hStream, [&](Stream& stream) {
    if (fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
    driver().host_calls.start();
    NodeContent content;
    content.type = CU_GRAPH_NODE_TYPE_HOST;
    content.works.push_back(host_work(fn, userData));
    return enqueue(stream, std::move(content));
  });
}
