#pragma once
#include <cstddef>
#include <cstdint>

#include "engine/memory/driver.hpp"

namespace sluice::engine {

/// The primary context of a device, which LibTorch and recordings use too. Keeps it alive.
class DeviceContext {
 public:
  /// index: of the GPU. Throws as MemoryDriver::check() does.
  DeviceContext(const MemoryDriver& driver, int index) : driver_(driver) {
    SLUICE_DRIVER(driver, cuInit(0));
    SLUICE_DRIVER(driver, cuDeviceGet(&device_, index));
    SLUICE_DRIVER(driver, cuDevicePrimaryCtxRetain(&context_, device_));
  }
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;
  ~DeviceContext() { driver_.cuDevicePrimaryCtxRelease(device_); }

  [[nodiscard]] const MemoryDriver& driver() const { return driver_; }
  [[nodiscard]] CUdevice device() const { return device_; }

  /// The context is current in this thread while this object lives.
  class Current {
   public:
    explicit Current(const DeviceContext& context) : driver_(context.driver_) {
      SLUICE_DRIVER(driver_, cuCtxPushCurrent(context.context_));
    }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    ~Current() {
      CUcontext popped = nullptr;
      driver_.cuCtxPopCurrent(&popped);
    }

   private:
    const MemoryDriver& driver_;
  };

  /// The memory of the device that nobody holds.
  [[nodiscard]] std::uint64_t free_bytes() const {
    const Current current(*this);
    std::size_t free = 0;
    std::size_t total = 0;
    SLUICE_DRIVER(driver_, cuMemGetInfo(&free, &total));
    return free;
  }

 private:
  const MemoryDriver& driver_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
};

}  // namespace sluice::engine
