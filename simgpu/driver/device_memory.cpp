#include "simgpu/driver/device_memory.hpp"

#include <utility>

#include "simgpu/driver/driver.hpp"

namespace sluice::simgpu {
namespace {

bool ask(RequestKind kind, CUdevice device, std::uint64_t bytes, Reply* answer = nullptr) {
  Request request;
  request.kind = kind;
  request.id = driver().visible.at(static_cast<std::size_t>(device));
  request.a = bytes;
  return driver().connection.request(request, -1, answer);
}

}  // namespace

DeviceMemory::DeviceMemory(CUdevice device, std::uint64_t bytes) : device_(device) {
  if (ask(RequestKind::kTakeMemory, device, bytes)) bytes_ = bytes;
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : device_(other.device_), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (bytes_ != 0) ask(RequestKind::kGiveMemory, device_, bytes_);
}

DeviceMemory::Info DeviceMemory::info(CUdevice device) {
  Reply reply;
  ask(RequestKind::kLookAtMemory, device, 0, &reply);
  return {reply.free_bytes, reply.total_bytes};
}

}  // namespace sluice::simgpu
