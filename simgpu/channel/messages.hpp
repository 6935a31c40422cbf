// Requests of a client to the GPU process, over a SOCK_SEQPACKET unix socket. Each request gets one
// Reply. Only set-up uses the socket; work travels in the shared Area.
#pragma once

#include <cstdint>

namespace sluice::simgpu {

enum class RequestKind : std::uint32_t {
  kHello = 1,       // a: kProtocolVersion; fd: the Area. The reply carries the doorbell, an eventfd
  kCreateContext,   // id: context, a: device
  kDestroyContext,  // id: context
  kMapMemory,       // a: address, b: bytes, c: offset in the file; fd: the file, or none
  kReachMemory,     // a: address; refused if the GPU process cannot read memory without a file
  kUnmapMemory,     // a: address
  kUploadGraph,     // a: number of the graph, b: number of Works; fd: a memfd with the Works
  kDropGraph,       // a: number of the graph
  kTakeMemory,      // id: device, a: bytes; refused if the device has less
  kGiveMemory,      // id: device, a: bytes that were taken
  kLookAtMemory,    // id: device; the reply has free_bytes and total_bytes
  kSetSlice,        // id: context, a: us, at most a second; 0: that of a new context
  kJoinMps,         // id: client priority, a: the daemon's identity, b: multiprocessors at most,
                    // c: the daemon's pid; refused after a fault, while a faulted client lives
};

struct Request {
  RequestKind kind = RequestKind::kHello;
  std::uint32_t id = 0;
  std::uint64_t a = 0;
  std::uint64_t b = 0;
  std::uint64_t c = 0;
};

struct Reply {
  std::int32_t status = 0;  // 0, or an errno
  std::int32_t gpu_pid = 0;
  std::uint32_t devices = 0;
  double scale = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
};

}  // namespace sluice::simgpu
