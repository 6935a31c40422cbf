#pragma once

#include <cstdint>

#include "simgpu/driver/connection.hpp"

namespace sluice::simgpu {

// A part of a device's memory, which all processes share. The GPU process keeps the account, and
// closes it when a process ends.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  // Of the device that has this number in the GPU process. Empty if the device has less. The
  // connection must live longer.
  DeviceMemory(Connection& connection, unsigned device, std::uint64_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  explicit operator bool() const { return bytes_ != 0; }

  struct Info {
    std::uint64_t free_bytes = 0;
    std::uint64_t total_bytes = 0;
  };
  static Info info(Connection& connection, unsigned device);

 private:
  Connection* connection_ = nullptr;
  unsigned device_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace sluice::simgpu
