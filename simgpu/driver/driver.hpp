// The only global object of the library: devices, contexts, and all objects behind handles.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "simgpu/driver/api.hpp"
#include "simgpu/driver/async_memory.hpp"
#include "simgpu/driver/connection.hpp"
#include "simgpu/driver/context.hpp"
#include "simgpu/driver/device_memory.hpp"
#include "simgpu/driver/event.hpp"
#include "simgpu/driver/graph.hpp"
#include "simgpu/driver/handles.hpp"
#include "simgpu/driver/host_call.hpp"
#include "simgpu/driver/memory.hpp"
#include "simgpu/driver/module.hpp"
#include "simgpu/driver/mps.hpp"
#include "simgpu/driver/staging.hpp"
#include "simgpu/driver/stream.hpp"
#include "simgpu/driver/virtual_memory.hpp"

namespace sluice::simgpu {

struct Driver {
  // Implements cuInit. Thread-safe. A success is permanent; a failed call may be repeated.
  CUresult initialise();

  // Returns CUDA_SUCCESS while calls can be carried out.
  [[nodiscard]] CUresult usable() const {
    if (!ready.load(std::memory_order_acquire)) return CUDA_ERROR_NOT_INITIALIZED;
    return connection.state();
  }

  [[nodiscard]] DeviceMemory take_memory(CUdevice device, std::uint64_t bytes) {
    return {connection, visible.at(static_cast<std::size_t>(device)), bytes};
  }
  [[nodiscard]] DeviceMemory::Info memory_info(CUdevice device) {
    return DeviceMemory::info(connection, visible.at(static_cast<std::size_t>(device)));
  }

  std::mutex init_mutex;
  std::atomic<bool> ready = false;
  std::atomic<bool> forked = false;  // this process is the child of a fork
  Connection connection;
  Mps mps;
  // Device numbers of the GPU process for the ordinals that CUDA_VISIBLE_DEVICES leaves.
  std::vector<unsigned> visible;
  PrimaryContexts primary;
  ChannelPool channels{connection};
  Memory memory{connection, visible};
  VirtualMemory virtual_memory{{[this](std::uint64_t at, std::uint64_t bytes, int file) {
                                  return memory.add_mapped(at, bytes, file);
                                },
                                [this](std::uint64_t at) { memory.remove_mapped(at); }}};
  AsyncMemory async_memory{[this](std::uint64_t at) { memory.free(MemoryKind::kAsync, at); }};
  EventSlots event_slots;
  Staging staging{memory};
  HostCalls host_calls{connection};
  Graphs graphs;

  HandleTable<CUcontext, Context> contexts{0x51};
  HandleTable<CUmodule, Module> modules{0x52};
  HandleTable<CUfunction, Function> functions{0x53};
  HandleTable<CUstream, Stream> streams{0x54};
  HandleTable<CUevent, Event> events{0x55};
};

// Of the device with this number in the GPU process.
std::array<std::uint8_t, 16> uuid_of(unsigned device);

// Never destroyed: other threads may be inside a call when the process exits.
Driver& driver();

// Runs `call(context)` with the calling thread's context.
template <typename F>
CUresult with_context(F&& call) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::shared_ptr<Context> context = current_context();
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (context->destroyed) return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  return call(*context);
}

// Finds the stream of a handle, of 0, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD.
CUresult find_stream(CUstream handle, std::shared_ptr<Stream>& stream);

// Runs `call(stream)` with the stream that the handle means in the calling thread.
template <typename F>
CUresult with_stream(CUstream handle, F&& call) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  std::shared_ptr<Stream> stream;
  const CUresult status = find_stream(handle, stream);
  return status == CUDA_SUCCESS ? call(*stream) : status;
}

}  // namespace sluice::simgpu
