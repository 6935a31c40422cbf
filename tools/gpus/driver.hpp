#pragma once
#include <filesystem>
#include <string>
#include <vector>

/// Asks a CUDA driver which devices it has.
namespace sluice::tools {

struct GpuDevice {
  int index = 0;  ///< The driver's index; CUDA_VISIBLE_DEVICES changes it.
  std::string name;
  std::string uuid;          ///< GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx
  std::string arch;          ///< The architecture for which code is compiled, "sm_90".
  std::string compute_mode;  ///< "default": several processes may use it.
  std::size_t memory_bytes = 0;
  int sms = 0;       ///< Under MPS, those that this process may use.
  bool mps = false;  ///< This process is a client of an MPS daemon.
};

struct GpuInventory {
  bool simulated = false;
  std::string library;         ///< The libcuda.so.1 that was asked.
  std::string driver_version;  ///< The CUDA version it supports, "13.0".
  std::vector<GpuDevice> devices;
};

/// Loads `library` (a path, or a bare name for the dynamic linker), initialises it and lists its
/// devices. A library in `simgpu_folder` is the simulated driver. Throws base::RunError if it
/// cannot be used.
GpuInventory ask_driver(const std::string& library, const std::filesystem::path& simgpu_folder);

}  // namespace sluice::tools
