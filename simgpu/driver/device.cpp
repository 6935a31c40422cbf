#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

#include "base/processes.hpp"
#include "simgpu/driver/driver.hpp"

using namespace sluice::simgpu;

namespace {

template <typename F>
CUresult with_device(CUdevice device, F&& call) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (device < 0 || static_cast<std::size_t>(device) >= driver().visible.size()) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  return call(driver().visible[static_cast<std::size_t>(device)]);
}

// The values of an H200 for the attributes that our programs query; 0 for all others.
const std::map<int, int>& attributes() {
  static const std::map<int, int> kValues = {
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
      {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
      {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
      {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
      {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_MEM_OPS_V1, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
      {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
      {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
      {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
      {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
  };
  return kValues;
}

int attribute(CUdevice_attribute which) {
  if (which == CU_DEVICE_ATTRIBUTE_MPS_ENABLED) return driver().mps.joined() ? 1 : 0;
  if (which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT) {
    return static_cast<int>(driver().mps.multiprocessors());
  }
  const auto found = attributes().find(which);
  return found == attributes().end() ? 0 : found->second;
}

CUresult device_uuid(CUuuid* uuid, CUdevice dev) {
  return with_device(dev, [&](unsigned physical) {
    if (uuid == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const auto bytes = uuid_of(physical);
    std::memcpy(uuid->bytes, bytes.data(), bytes.size());
    return CUDA_SUCCESS;
  });
}

}  // namespace

std::array<std::uint8_t, 16> sluice::simgpu::uuid_of(unsigned device) {
  static_assert(sluice::base::kSimulatedUuid.size() == 15);  // the last byte is the device number
  std::array<std::uint8_t, 16> uuid{};
  std::copy(sluice::base::kSimulatedUuid.begin(), sluice::base::kSimulatedUuid.end(), uuid.begin());
  uuid[15] = static_cast<std::uint8_t>(device + 1);
  return uuid;
}

CUresult cuDeviceGetCount(int* count) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<int>(driver().visible.size());
  return CUDA_SUCCESS;
}

CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  return with_device(ordinal, [&](unsigned) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = ordinal;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetName(char* name, int len, CUdevice dev) {
  return with_device(dev, [&](unsigned) {
    if (name == nullptr || len <= 0) return CUDA_ERROR_INVALID_VALUE;
    std::snprintf(name, static_cast<std::size_t>(len), "Sluice simulated GPU (scale %g)",
                  driver().connection.gpu().scale);
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice dev) { return device_uuid(uuid, dev); }
CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice dev) { return device_uuid(uuid, dev); }

CUresult cuDeviceTotalMem_v2(size_t* bytes, CUdevice dev) {
  return with_device(dev, [&](unsigned) {
    if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *bytes = driver().memory_info(dev).total_bytes;
    return CUDA_SUCCESS;
  });
}

CUresult cuDeviceGetAttribute(int* pi, CUdevice_attribute attrib, CUdevice dev) {
  return with_device(dev, [&](unsigned) {
    if (pi == nullptr || attrib <= 0 || attrib >= CU_DEVICE_ATTRIBUTE_MAX) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    *pi = attribute(attrib);
    return CUDA_SUCCESS;
  });
}
