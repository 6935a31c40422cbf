#include "tools/gpus/driver.hpp"

#include <cuda.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/cuda_library.hpp"
#include "base/processes.hpp"

namespace sluice::tools {
namespace {

template <class Entry, class... Args>
void call(const base::CudaLibrary& driver, const char* name, Args... args) {
  const CUresult result = driver.get<Entry>(name)(args...);
  if (result == CUDA_SUCCESS) return;
  if (result == CUDA_ERROR_STUB_LIBRARY) {
    throw base::RunError(driver.path() +
                         " is the stub of a CUDA toolkit, for linking, and no driver; take its "
                         "folder out of LD_LIBRARY_PATH");
  }
  throw base::RunError(driver.path() + ": " + name + ": " + driver.name_of(result));
}

std::string name_of_mode(int mode) {
  if (mode == CU_COMPUTEMODE_EXCLUSIVE_PROCESS) return "exclusive process";
  return mode == CU_COMPUTEMODE_PROHIBITED ? "prohibited" : "default";
}

GpuDevice describe_device(const base::CudaLibrary& driver, int index) {
  CUdevice device = 0;
  call<decltype(cuDeviceGet)>(driver, "cuDeviceGet", &device, index);
  std::array<char, 256> name{};
  call<decltype(cuDeviceGetName)>(driver, "cuDeviceGetName", name.data(),
                                  static_cast<int>(name.size() - 1), device);
  int major = 0;
  int minor = 0;
  call<decltype(cuDeviceGetAttribute)>(driver, "cuDeviceGetAttribute", &major,
                                       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  call<decltype(cuDeviceGetAttribute)>(driver, "cuDeviceGetAttribute", &minor,
                                       CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  int mode = CU_COMPUTEMODE_DEFAULT;
  call<decltype(cuDeviceGetAttribute)>(driver, "cuDeviceGetAttribute", &mode,
                                       CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device);
  std::size_t memory = 0;
  call<decltype(cuDeviceTotalMem)>(driver, "cuDeviceTotalMem_v2", &memory, device);
  int sms = 0;
  call<decltype(cuDeviceGetAttribute)>(driver, "cuDeviceGetAttribute", &sms,
                                       CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
  int mps = 0;  // older drivers do not know the question
  static_cast<void>(driver.get<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute")(
      &mps, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device));
  CUuuid uuid{};
  call<decltype(cuDeviceGetUuid)>(driver, "cuDeviceGetUuid_v2", &uuid, device);
  std::array<std::uint8_t, 16> bytes{};
  std::memcpy(bytes.data(), uuid.bytes, bytes.size());
  return {index,
          name.data(),
          base::format_uuid(bytes),
          "sm_" + std::to_string(major) + std::to_string(minor),
          name_of_mode(mode),
          memory,
          sms,
          mps != 0};
}

bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code ignored;
  return std::filesystem::equivalent(a, b, ignored);
}

}  // namespace

GpuInventory ask_driver(const std::string& library, const std::filesystem::path& simgpu_folder) {
  const base::CudaLibrary driver(library);
  GpuInventory inventory;
  inventory.library = driver.path();
  inventory.simulated = same_file(driver.path(), simgpu_folder / "libcuda.so.1");
  call<decltype(cuInit)>(driver, "cuInit", 0U);
  int version = 0;
  call<decltype(cuDriverGetVersion)>(driver, "cuDriverGetVersion", &version);
  inventory.driver_version =
      std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  int count = 0;
  call<decltype(cuDeviceGetCount)>(driver, "cuDeviceGetCount", &count);
  if (count == 0)
    throw base::RunError(driver.path() + " finds no device (CUDA_VISIBLE_DEVICES hides all?)");
  for (int index = 0; index < count; ++index) {
    inventory.devices.push_back(describe_device(driver, index));
  }
  return inventory;
}

}  // namespace sluice::tools
