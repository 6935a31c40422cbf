#pragma once
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

/// Asks a CUDA driver which devices it has.
namespace sluice::tools {

struct GpuDevice {
  int index = 0;  ///< As the driver counts here; CUDA_VISIBLE_DEVICES changes it.
  std::string name;
  std::string uuid;  ///< GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx
  std::string arch;  ///< For which code is compiled, "sm_90".
};

struct GpuInventory {
  bool simulated = false;
  std::string library;         ///< The libcuda.so.1 that was asked.
  std::string driver_version;  ///< The CUDA version it supports, "13.0".
  std::vector<GpuDevice> devices;
};

/// No usable driver; what() says in one line what was tried and what it said.
struct NoGpu : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Loads `library` (a path, or a bare name that the dynamic linker looks up), initialises it and
/// lists its devices. `simgpu_folder` tells the simulated driver from a real one. Throws NoGpu.
/// The driver stays loaded: unloading one is not supported by CUDA.
GpuInventory ask_driver(const std::string& library, const std::filesystem::path& simgpu_folder);

}  // namespace sluice::tools
