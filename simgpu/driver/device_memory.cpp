#include "simgpu/driver/device_memory.hpp"

#include <utility>

namespace sluice::simgpu {
namespace {

bool ask(Connection& connection, RequestKind kind, unsigned device, std::uint64_t bytes,
         Reply* answer = nullptr) {
  Request request;
  request.kind = kind;
  request.id = device;
  request.a = bytes;
  return connection.request(request, -1, answer);
}

}  // namespace

DeviceMemory::DeviceMemory(Connection& connection, unsigned device, std::uint64_t bytes)
    : connection_(&connection), device_(device) {
  if (ask(connection, RequestKind::kTakeMemory, device, bytes)) bytes_ = bytes;
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : connection_(other.connection_),
      device_(other.device_),
      bytes_(std::exchange(other.bytes_, 0)) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(connection_, other.connection_);
  std::swap(device_, other.device_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (bytes_ != 0) ask(*connection_, RequestKind::kGiveMemory, device_, bytes_);
}

DeviceMemory::Info DeviceMemory::info(Connection& connection, unsigned device) {
  Reply reply;
  ask(connection, RequestKind::kLookAtMemory, device, 0, &reply);
  return {reply.free_bytes, reply.total_bytes};
}

}  // namespace sluice::simgpu
