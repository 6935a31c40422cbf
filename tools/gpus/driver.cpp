#include "tools/gpus/driver.hpp"

#include <cuda.h>
#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/processes.hpp"

namespace sluice::tools {
namespace {

/// Why dlopen() has just failed.
std::string why_not_loaded(const std::string& library) {
  const std::string said = dlerror();
  if (said.ends_with("No such file or directory"))
    return "no NVIDIA driver found (" + library + ")";
  return "no usable NVIDIA driver: " + said;
}

/// A loaded driver. Looks entries up by their exported names.
class Driver {
 public:
  explicit Driver(const std::string& library) : library_(library) {
    handle_ = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) throw NoGpu(why_not_loaded(library));
    link_map* map = nullptr;
    if (dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr) library_ = map->l_name;
  }

  [[nodiscard]] const std::string& path() const { return library_; }

  template <class Entry, class... Args>
  void call(const char* name, Args... args) const {
    auto* entry = reinterpret_cast<Entry*>(dlsym(handle_, name));
    if (entry == nullptr) throw NoGpu(library_ + " has no " + name);
    const CUresult result = entry(args...);
    if (result != CUDA_SUCCESS) throw NoGpu(library_ + ": " + name + ": " + describe(result));
  }

 private:
  [[nodiscard]] std::string describe(CUresult result) const {
    const char* text = nullptr;
    auto* get_name = reinterpret_cast<decltype(cuGetErrorName)*>(dlsym(handle_, "cuGetErrorName"));
    if (get_name != nullptr && get_name(result, &text) == CUDA_SUCCESS && text != nullptr) {
      return text;
    }
    return "error " + std::to_string(static_cast<int>(result));
  }

  void* handle_ = nullptr;
  std::string library_;
};

GpuDevice describe_device(const Driver& driver, int index) {
  CUdevice device = 0;
  driver.call<decltype(cuDeviceGet)>("cuDeviceGet", &device, index);
  std::array<char, 256> name{};
  driver.call<decltype(cuDeviceGetName)>("cuDeviceGetName", name.data(),
                                         static_cast<int>(name.size() - 1), device);
  int major = 0;
  int minor = 0;
  driver.call<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute", &major,
                                              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  driver.call<decltype(cuDeviceGetAttribute)>("cuDeviceGetAttribute", &minor,
                                              CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  std::size_t memory = 0;
  driver.call<decltype(cuDeviceTotalMem)>("cuDeviceTotalMem_v2", &memory, device);
  CUuuid uuid{};
  driver.call<decltype(cuDeviceGetUuid)>("cuDeviceGetUuid_v2", &uuid, device);
  std::array<std::uint8_t, 16> bytes{};
  std::memcpy(bytes.data(), uuid.bytes, bytes.size());
  return {index, name.data(), base::format_uuid(bytes),
          "sm_" + std::to_string(major) + std::to_string(minor), memory};
}

bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code ignored;
  return std::filesystem::equivalent(a, b, ignored);
}

}  // namespace

GpuInventory ask_driver(const std::string& library, const std::filesystem::path& simgpu_folder) {
  const Driver driver(library);
  GpuInventory inventory;
  inventory.library = driver.path();
  inventory.simulated = same_file(driver.path(), simgpu_folder / "libcuda.so.1");
  driver.call<decltype(cuInit)>("cuInit", 0U);
  int version = 0;
  driver.call<decltype(cuDriverGetVersion)>("cuDriverGetVersion", &version);
  inventory.driver_version =
      std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
  int count = 0;
  driver.call<decltype(cuDeviceGetCount)>("cuDeviceGetCount", &count);
  if (count == 0) throw NoGpu(driver.path() + " finds no device (CUDA_VISIBLE_DEVICES hides all?)");
  for (int index = 0; index < count; ++index) {
    inventory.devices.push_back(describe_device(driver, index));
  }
  return inventory;
}

}  // namespace sluice::tools
