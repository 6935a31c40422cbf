#pragma once
#include <algorithm>
#include <cstring>

#include "state.hpp"

/// What each entry does: one overload of behave() per entry. An entry with a per-thread form has
/// the overload of its plain form. An entry without an overload returns CUDA_SUCCESS and does
/// nothing. All overloads run under the state's lock.
namespace fake {

template <Id id>
struct Tag {};

using Lock = std::unique_lock<std::mutex>&;

template <Id id, class... Args>
CUresult behave(Tag<id> /*entry*/, Lock /*lock*/, Args... /*arguments*/) {
  return CUDA_SUCCESS;
}

#define SLUICE_FAKE_ENTRY(name, ...)              \
  inline CUresult behave(Tag<Id::name> /*entry*/, \
                         [[maybe_unused]] Lock lock __VA_OPT__(, ) __VA_ARGS__)

// Launches and copies

SLUICE_FAKE_ENTRY(cuLaunchKernel, CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                  unsigned by, unsigned bz, unsigned shared, CUstream stream, void**, void**) {
  state().stream_of(stream).function = f;
  return state().submit(stream, 'K', {f, gx, gy, gz, bx, by, bz, shared, {}, {}, {}, {}});
}
SLUICE_FAKE_ENTRY(cuLaunchCooperativeKernel, CUfunction, unsigned, unsigned, unsigned, unsigned,
                  unsigned, unsigned, unsigned, CUstream stream, void**) {
  return state().submit(stream, 'K');
}
SLUICE_FAKE_ENTRY(cuLaunchKernelEx, const CUlaunchConfig* config, CUfunction, void**, void**) {
  return state().submit(config == nullptr ? nullptr : config->hStream, 'K');
}
SLUICE_FAKE_ENTRY(cuLaunch, CUfunction) { return state().submit(nullptr, 'K'); }
SLUICE_FAKE_ENTRY(cuLaunchGrid, CUfunction, int, int) { return state().submit(nullptr, 'K'); }
SLUICE_FAKE_ENTRY(cuLaunchGridAsync, CUfunction, int, int, CUstream stream) {
  return state().submit(stream, 'K');
}
SLUICE_FAKE_ENTRY(cuLaunchCooperativeKernelMultiDevice, CUDA_LAUNCH_PARAMS* kernels, unsigned count,
                  unsigned) {
  for (unsigned i = 0; kernels != nullptr && i < count; ++i)
    state().submit(kernels[i].hStream, 'K');
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuGraphLaunch, CUgraphExec exec, CUstream handle) {
  const CUresult result = state().submit(handle, 'G');
  const CUstream_st& stream = state().stream_of(handle);
  const bool captured = result == CUDA_SUCCESS && stream.capture != nullptr;
  if (captured && state().is_exec(exec)) {
    stream.tail.front()->child = state().clone(exec->graph);
  }
  return result;
}
SLUICE_FAKE_ENTRY(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void*, std::size_t, CUstream stream) {
  return state().submit(stream, 'C');
}
SLUICE_FAKE_ENTRY(cuStreamWaitValue64_v2, CUstream stream, CUdeviceptr address, cuuint64_t value,
                  unsigned flags) {
  if (!state().stream_waits) return CUDA_ERROR_NOT_SUPPORTED;
  // As driver 580 does, once the context of the registration has ended.
  if (!state().is_registered(address)) return CUDA_ERROR_INVALID_VALUE;
  return state().submit_wait(stream, address, value, flags);
}

SLUICE_FAKE_ENTRY(cuModuleLoadData, CUmodule*, const void*) {
  return state().unsafe_call() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}
/// There is one function, of the one module that is ever loaded here.
SLUICE_FAKE_ENTRY(cuModuleGetFunction, CUfunction* function, CUmodule, const char*) {
  *function = reinterpret_cast<CUfunction>(kLoadedFunction);
  return CUDA_SUCCESS;
}

// Streams and events

SLUICE_FAKE_ENTRY(cuStreamCreate, CUstream* made, unsigned) {
  State& s = state();
  if (s.free_streams.empty()) {
    s.streams.push_back(std::make_unique<CUstream_st>());
    s.free_streams.push_back(s.streams.back().get());
  }
  CUstream stream = s.free_streams.back();
  s.free_streams.pop_back();
  *stream = CUstream_st{};
  stream->id = s.next_stream_id++;
  stream->context = s.current();
  *made = stream;
  return CUDA_SUCCESS;
}
inline CUresult destroy_stream(CUstream handle) {
  CUstream_st* stream = state().find_stream(handle);
  if (stream == nullptr || stream == &state().legacy) return CUDA_ERROR_INVALID_HANDLE;
  stream->alive = false;
  state().free_streams.push_back(stream);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuStreamDestroy, CUstream stream) { return destroy_stream(stream); }
SLUICE_FAKE_ENTRY(cuStreamDestroy_v2, CUstream stream) { return destroy_stream(stream); }

SLUICE_FAKE_ENTRY(cuStreamGetId, CUstream handle, unsigned long long* id) {
  CUstream_st* stream = state().find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  if (stream->capture != nullptr) {  // as driver 580 does
    stream->capture->broken = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  *id = stream->id;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuStreamGetCtx, CUstream handle, CUcontext* context) {
  CUstream_st* stream = state().find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *context = stream->context == nullptr ? state().current() : stream->context;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuStreamQuery, CUstream handle) {
  CUstream_st* stream = state().find_stream(handle);
  if (stream == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  const bool captured = stream->capture != nullptr;
  if (captured) stream->capture->broken = true;
  if (captured || state().unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  return state().is_done(*stream) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
SLUICE_FAKE_ENTRY(cuStreamSynchronize, CUstream handle) {
  CUstream_st* stream = state().find_stream(handle);
  if (stream == nullptr) return CUDA_SUCCESS;  // an invented handle of a routing test
  if (state().unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  state().wait(lock, *stream);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuCtxSynchronize) {
  if (state().unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  state().wait(lock, state().legacy);
  for (std::size_t i = 0; i < state().streams.size(); ++i) state().wait(lock, *state().streams[i]);
  return CUDA_SUCCESS;
}

SLUICE_FAKE_ENTRY(cuEventCreate, CUevent* event, unsigned) {
  state().event_memory.push_back(std::make_unique<CUevent_st>());
  *event = state().event_memory.back().get();
  (*event)->context = state().current();
  state().events.insert(*event);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuEventDestroy_v2, CUevent event) {
  if (!state().is_event(event)) return CUDA_ERROR_INVALID_HANDLE;
  state().events.erase(event);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuEventRecord, CUevent event, CUstream handle) {
  if (!state().is_event(event)) return CUDA_ERROR_INVALID_HANDLE;
  CUstream_st& stream = state().stream_of(handle);
  event->stream = &stream;
  event->mark = stream.submitted;
  event->capture = stream.capture;
  event->tail = stream.tail;
  const auto known = state().elapsed_of.find(stream.function);
  event->ms.reset();
  if (known != state().elapsed_of.end()) event->ms = known->second;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuEventQuery, CUevent event) {
  if (state().unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  if (!state().is_event(event)) return CUDA_ERROR_INVALID_HANDLE;
  const bool done = event->stream == nullptr || event->stream->done >= event->mark;
  return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
SLUICE_FAKE_ENTRY(cuEventSynchronize, CUevent event) {
  if (!state().is_event(event) || event->stream == nullptr) return CUDA_SUCCESS;
  state().wait(lock, *event->stream, event->mark);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuEventElapsedTime, float* ms, CUevent before, CUevent after) {
  if (state().events.count(before) + state().events.count(after) != 2) {
    return CUDA_ERROR_INVALID_HANDLE;
  }
  *ms = after->ms.value_or(state().elapsed_ms);
  return CUDA_SUCCESS;
}
/// Inside a capture this is how a second stream joins it.
SLUICE_FAKE_ENTRY(cuStreamWaitEvent, CUstream handle, CUevent event, unsigned) {
  CUstream_st& stream = state().stream_of(handle);
  // An event may be an invented handle of a routing test.
  if (!state().events.contains(event) || event->capture == nullptr) return CUDA_SUCCESS;
  stream.capture = event->capture;
  stream.tail = event->tail;
  return CUDA_SUCCESS;
}

// Contexts and devices

SLUICE_FAKE_ENTRY(cuDevicePrimaryCtxRetain, CUcontext* context, CUdevice device) {
  *context = state().primary_of(device);
  ++(*context)->retained;
  return CUDA_SUCCESS;
}
/// The handle of a context that has ended is given out again.
inline CUresult make_context(CUcontext* context, CUdevice device) {
  auto& contexts = state().contexts;
  const auto ended = std::find_if(contexts.begin(), contexts.end(),
                                  [](const auto& made) { return !made->alive && !made->primary; });
  auto& made =
      ended == contexts.end() ? contexts.emplace_back(std::make_unique<CUctx_st>()) : *ended;
  *made = CUctx_st{device, false, true, 0, state().next_context_id++};
  *context = made.get();
  this_thread().contexts.push_back(*context);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuCtxCreate, CUcontext* context, unsigned, CUdevice device) {
  return make_context(context, device);
}
SLUICE_FAKE_ENTRY(cuCtxCreate_v2, CUcontext* context, unsigned, CUdevice device) {
  return make_context(context, device);
}
SLUICE_FAKE_ENTRY(cuCtxCreate_v3, CUcontext* context, CUexecAffinityParam*, int, unsigned,
                  CUdevice device) {
  return make_context(context, device);
}
SLUICE_FAKE_ENTRY(cuCtxCreate_v4, CUcontext* context, CUctxCreateParams*, unsigned,
                  CUdevice device) {
  return make_context(context, device);
}
/// Destroys the streams, events and registrations of the context too.
inline CUresult end_context(CUcontext context) {
  State& s = state();
  const bool known = std::any_of(s.contexts.begin(), s.contexts.end(),
                                 [&](const auto& made) { return made.get() == context; });
  if (!known) return CUDA_SUCCESS;  // an invented handle of a routing test
  context->alive = false;
  for (const auto& stream : s.streams) {
    if (stream->alive && stream->context == context) destroy_stream(stream.get());
  }
  std::erase_if(s.events, [&](CUevent event) { return event->context == context; });
  std::erase_if(s.registered, [&](const auto& each) { return each.second == context; });
  std::erase_if(s.pooled, [&](const auto& each) { return each.second.context == context; });
  std::erase(this_thread().contexts, context);
  if (context->primary) s.primary.erase(context->device);
  return CUDA_SUCCESS;
}
/// A primary context can only be released or reset.
inline CUresult destroy_context(CUcontext context) {
  const auto& primary = state().primary;
  const bool is_primary = std::any_of(primary.begin(), primary.end(), [context](const auto& each) {
    return each.second == context;
  });
  return is_primary ? CUDA_ERROR_INVALID_CONTEXT : end_context(context);
}
SLUICE_FAKE_ENTRY(cuCtxDestroy, CUcontext context) { return destroy_context(context); }
SLUICE_FAKE_ENTRY(cuCtxDestroy_v2, CUcontext context) { return destroy_context(context); }
SLUICE_FAKE_ENTRY(cuCtxDetach, CUcontext context) { return end_context(context); }
inline CUresult release_primary(CUdevice device) {
  const CUcontext context = state().primary_of(device);
  return context->retained == 0 || --context->retained != 0 ? CUDA_SUCCESS : end_context(context);
}
SLUICE_FAKE_ENTRY(cuDevicePrimaryCtxRelease, CUdevice device) { return release_primary(device); }
SLUICE_FAKE_ENTRY(cuDevicePrimaryCtxRelease_v2, CUdevice device) { return release_primary(device); }
/// A green context is a context of its own here and retains the primary one.
SLUICE_FAKE_ENTRY(cuGreenCtxCreate, CUgreenCtx* green, CUdevResourceDesc, CUdevice device,
                  unsigned) {
  state().contexts.push_back(
      std::make_unique<CUctx_st>(CUctx_st{device, false, true, 0, state().next_context_id++}));
  *green = reinterpret_cast<CUgreenCtx>(state().contexts.back().get());
  ++state().primary_of(device)->retained;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuCtxFromGreenCtx, CUcontext* context, CUgreenCtx green) {
  const auto wanted = reinterpret_cast<CUcontext>(green);
  const auto& made = state().contexts;
  const bool known = std::any_of(made.begin(), made.end(), [wanted](const auto& one) {
    return one.get() == wanted && one->alive;
  });
  *context = wanted;
  return known ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}
SLUICE_FAKE_ENTRY(cuGreenCtxDestroy, CUgreenCtx green) {
  CUcontext context = nullptr;
  // Otherwise a routing test has invented the handle.
  if (behave(Tag<Id::cuCtxFromGreenCtx>{}, lock, &context, green) != CUDA_SUCCESS) {
    return CUDA_SUCCESS;
  }
  end_context(context);
  return release_primary(context->device);
}
SLUICE_FAKE_ENTRY(cuDevicePrimaryCtxGetState, CUdevice device, unsigned*, int* active) {
  *active = state().primary.count(device) != 0 ? 1 : 0;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuDevicePrimaryCtxReset, CUdevice device) {
  return end_context(state().primary_of(device));
}
SLUICE_FAKE_ENTRY(cuDevicePrimaryCtxReset_v2, CUdevice device) {
  return end_context(state().primary_of(device));
}

SLUICE_FAKE_ENTRY(cuCtxGetId, CUcontext context, unsigned long long* id) {
  const auto& made = state().contexts;
  const bool lives = std::any_of(made.begin(), made.end(), [context](const auto& one) {
    return one.get() == context && one->alive;
  });
  if (!lives) return CUDA_ERROR_INVALID_CONTEXT;  // or an invented handle of a routing test
  *id = context->id;
  return CUDA_SUCCESS;
}

SLUICE_FAKE_ENTRY(cuCtxGetCurrent, CUcontext* context) {
  *context = state().current();
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuCtxSetCurrent, CUcontext context) {
  this_thread().contexts = {context};
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuCtxGetDevice, CUdevice* device) {
  *device = state().current()->device;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuCtxPushCurrent_v2, CUcontext context) {
  if (context == nullptr || !context->alive) return CUDA_ERROR_INVALID_CONTEXT;
  this_thread().contexts.push_back(context);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuCtxPopCurrent_v2, CUcontext* context) {
  if (this_thread().contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  *context = this_thread().contexts.back();
  this_thread().contexts.pop_back();
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuDeviceGetAttribute, int* value, CUdevice_attribute which, CUdevice) {
  *value = which == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT                   ? 100
           : which == CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR       ? 2048
           : which == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR ? 200'000
           : state().stream_waits                                              ? 1
                                                                               : 0;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuDeviceGetUuid_v2, CUuuid* uuid, CUdevice device) {
  std::memset(uuid->bytes, device + 1, sizeof(uuid->bytes));
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuDeviceGetName, char* name, int size, CUdevice) {
  std::strncpy(name, "Fake GPU", static_cast<std::size_t>(size));
  return CUDA_SUCCESS;
}

// Device memory

SLUICE_FAKE_ENTRY(cuDeviceTotalMem_v2, std::size_t* total, CUdevice) {
  *total = fake::kTotalMemory;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuMemGetInfo_v2, std::size_t* free, std::size_t* total) {
  if (free != nullptr) *free = fake::kFreeMemory;
  if (total != nullptr) *total = fake::kTotalMemory;
  return CUDA_SUCCESS;
}

inline CUresult take(unsigned long long* out) {
  if (state().current() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *out = state().take_memory();
  return CUDA_SUCCESS;
}
inline CUresult give(unsigned long long what) {
  const auto found = state().memory.find(what);
  if (found == state().memory.end()) return CUDA_ERROR_INVALID_VALUE;
  state().memory.erase(found);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuMemAlloc_v2, CUdeviceptr* at, std::size_t) { return take(at); }
SLUICE_FAKE_ENTRY(cuMemAllocPitch_v2, CUdeviceptr* at, std::size_t* pitch, std::size_t width,
                  std::size_t, unsigned) {
  *pitch = (width + 511) / 512 * 512;
  return take(at);
}
SLUICE_FAKE_ENTRY(cuMemAllocManaged, CUdeviceptr* at, std::size_t, unsigned) { return take(at); }
SLUICE_FAKE_ENTRY(cuMemFree_v2, CUdeviceptr at) {
  state().pooled.erase(at);
  return give(at);
}
inline CUresult take_from_pool(CUdeviceptr* at, std::size_t bytes, CUmemoryPool pool,
                               CUstream stream) {
  State& s = state();
  if (pool == nullptr) pool = default_pool(s.current()->device);
  if (const CUresult result = take(at); result != CUDA_SUCCESS) return result;
  s.take_from(pool, stream, bytes);
  s.pooled[*at] = {bytes, pool, s.current(), nullptr, 0};
  return CUDA_SUCCESS;
}
/// In a capture, these are nodes of a graph.
SLUICE_FAKE_ENTRY(cuMemAllocAsync, CUdeviceptr* at, std::size_t bytes, CUstream stream) {
  if (state().stream_of(stream).capture != nullptr) return state().submit(stream, 'A');
  return take_from_pool(at, bytes, nullptr, stream);
}
SLUICE_FAKE_ENTRY(cuMemAllocFromPoolAsync, CUdeviceptr* at, std::size_t bytes, CUmemoryPool pool,
                  CUstream stream) {
  return take_from_pool(at, bytes, pool, stream);
}
SLUICE_FAKE_ENTRY(cuMemFreeAsync, CUdeviceptr at, CUstream handle) {
  CUstream_st& stream = state().stream_of(handle);
  if (stream.capture != nullptr) return state().submit(handle, 'F');
  const CUresult result = give(at);
  const auto found = state().pooled.find(at);
  if (result != CUDA_SUCCESS || found == state().pooled.end()) return result;
  found->second.stream = &stream;
  found->second.mark = stream.submitted;
  state().freed.push_back(found->second);
  state().pooled.erase(found);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuDeviceGetMemPool, CUmemoryPool* pool, CUdevice device) {
  *pool = default_pool(device);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuMemPoolGetAttribute, CUmemoryPool pool, CUmemPool_attribute, void* value) {
  *static_cast<cuuint64_t*>(value) = state().reserved_by(pool);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuMemPoolTrimTo, CUmemoryPool pool, std::size_t) {
  state().give_back_freed();
  state().kept[pool] = 0;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuMemPoolCreate, CUmemoryPool* pool, const CUmemPoolProps*) {
  *pool = reinterpret_cast<CUmemoryPool>(state().next_pool++);
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuMemPoolDestroy, CUmemoryPool pool) {
  state().kept[pool] = 0;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuMemCreate, CUmemGenericAllocationHandle* handle, std::size_t,
                  const CUmemAllocationProp*, unsigned long long) {
  return take(handle);
}
SLUICE_FAKE_ENTRY(cuMemRelease, CUmemGenericAllocationHandle handle) { return give(handle); }
/// A handle of another process, or one of this process if the test says so.
SLUICE_FAKE_ENTRY(cuMemImportFromShareableHandle, CUmemGenericAllocationHandle* handle, void* from,
                  CUmemAllocationHandleType) {
  if (from == nullptr) return take(handle);
  *handle = *state().memory.insert(reinterpret_cast<std::uintptr_t>(from));
  return CUDA_SUCCESS;
}
/// The handle as the address says.
SLUICE_FAKE_ENTRY(cuMemRetainAllocationHandle, CUmemGenericAllocationHandle* handle, void* at) {
  *handle = *state().memory.insert(reinterpret_cast<std::uintptr_t>(at));
  return CUDA_SUCCESS;
}

// Host memory

SLUICE_FAKE_ENTRY(cuMemHostRegister_v2, void* host, std::size_t, unsigned) {
  if (state().unsafe_call()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  const bool done = state().registered.emplace(host, state().current()).second;
  if (!done) return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
  return CUDA_SUCCESS;
}
SLUICE_FAKE_ENTRY(cuMemHostGetDevicePointer_v2, CUdeviceptr* address, void* host, unsigned) {
  if (!state().is_registered(reinterpret_cast<CUdeviceptr>(host))) return CUDA_ERROR_INVALID_VALUE;
  *address = reinterpret_cast<CUdeviceptr>(host);
  return CUDA_SUCCESS;
}

}  // namespace fake

#include "behaviour_graph.hpp"
