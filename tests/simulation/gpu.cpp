#include "tests/simulation/gpu.hpp"

#include <algorithm>
#include <cstring>

#include "intercept/driver/process.hpp"
#include "tests/simulation/world.hpp"

namespace sluice::simulation {
namespace {

using intercept::Driver;
using Kind = GpuStream::Item::Kind;

constexpr std::uint64_t kNever = ~std::uint64_t{0};

GpuStream& of(CUstream handle) {
  GpuStream& stream = *reinterpret_cast<GpuStream*>(handle);
  if (!stream.exists) g_world->broken("a stream is used after its end");
  return stream;
}
GpuContext& of(CUcontext handle) {
  GpuContext& context = *reinterpret_cast<GpuContext*>(handle);
  if (!context.exists) g_world->broken("a context is used after its end");
  return context;
}
GpuStream::Event& of(CUevent handle) {
  GpuStream::Event& event = *reinterpret_cast<GpuStream::Event*>(handle);
  const bool exists = event.context->exists && event.context->ended == event.of && !event.destroyed;
  if (!exists) g_world->broken("an event is used after its end");
  return event;
}

CUcontext current_context() {
  const auto& pushed = g_fibers->current->contexts;
  return reinterpret_cast<CUcontext>(pushed.empty() ? &g_world->running().contexts.front()
                                                    : pushed.back());
}

/// Its work goes on, but nobody is asked to protect it any more.
void end(GpuStream& stream) {
  stream.exists = false;
  stream.gave_up_ns = 0;
  for (GpuStream::Item& item : stream.items) item.counted = false;
}

bool has_come(const GpuStream::Item& wait) {
  return wait.kind == Kind::kWaitEqual ? *wait.word == wait.value
                                       : static_cast<std::int64_t>(*wait.word - wait.value) >= 0;
}

/// With a full queue the driver blocks, whatever the queue waits for.
void wait_for_room(const GpuStream& stream) {
  const std::uint64_t begin_ns = g_fibers->now_ns;
  while (stream.items.size() >= GpuStream::kQueue) g_fibers->sleep(kNever, &stream);
  g_fibers->current->blocked_ns = g_fibers->now_ns - begin_ns;
}
void wait_for_work(const GpuStream& stream) {
  while (!stream.items.empty()) g_fibers->sleep(kNever, &stream);
}

CUresult launch(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                CUstream stream, void** arguments, void**) {
  wait_for_room(of(stream));
  const auto ns = *static_cast<std::uint64_t*>(arguments[0]);
  const auto* const other = static_cast<const GpuStream*>(arguments[1]);
  const auto [paced, counted] = g_world->launched(of(stream));
  of(stream).items.push_back({Kind::kKernel, ns, nullptr, nullptr, paced, counted, other,
                              other == nullptr ? 0 : other->kernels_ended,
                              counted && g_fibers->current->is_client});
  return CUDA_SUCCESS;
}

CUresult query(CUstream stream) {
  GpuStream& asked = of(stream);
  const bool blocks = asked.items.size() >= GpuStream::kQueue &&
                      asked.items.front().word != nullptr && !has_come(asked.items.front());
  if (blocks) g_fibers->sleep(kNever, &asked);
  return asked.items.empty() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult wait_value(CUstream stream, CUdeviceptr word, cuuint64_t value, unsigned flags) {
  const Kind kind = flags == CU_STREAM_WAIT_VALUE_EQ ? Kind::kWaitEqual : Kind::kWaitAtLeast;
  of(stream).items.push_back({kind, value, reinterpret_cast<const std::uint64_t*>(word)});
  return CUDA_SUCCESS;
}

CUresult record(CUevent event, CUstream stream) {
  of(stream).items.push_back({Kind::kEvent, ++of(event).recorded, nullptr, &of(event)});
  return CUDA_SUCCESS;
}

/// Also gives memory back, which takes time.
CUresult end_context(CUcontext handle) {
  GpuContext& context = of(handle);
  for (GpuStream& stream : g_world->running().streams) {
    if (stream.context == &context) wait_for_work(stream);
  }
  const std::uint64_t longest_ns = g_fibers->random.one_in(4) ? 1'000'000'000 : 5'000'000;
  g_fibers->sleep(g_fibers->now_ns + g_fibers->random.below(longest_ns));
  for (GpuStream& stream : g_world->running().streams) {
    if (stream.context == &context) end(stream);
  }
  context.exists = false;
  ++context.ended;
  g_fibers->current->contexts.clear();
  return CUDA_SUCCESS;
}

/// The kernel module may be busy with something long, or refuse.
CUresult set_slice(CUdevice, std::uint64_t us) {
  Random& draws = g_fibers->random;
  Process& process = g_world->running();
  g_fibers->sleep(g_fibers->now_ns + draws.below(draws.one_in(8) ? 100'000'000 : 300'000));
  process.slice_ns = g_fibers->now_ns;
  if (!g_world->peaceful() && draws.one_in(4)) return CUDA_ERROR_NOT_PERMITTED;
  process.slice_us = static_cast<std::uint32_t>(us);
  return CUDA_SUCCESS;
}

Driver simulated_driver() {
  Driver driver;
#define SLUICE_CALL(name) driver.name = &intercept::Missing<decltype(&::name)>::call;
#include "intercept/driver/calls.def"
#undef SLUICE_CALL
  driver.cuLaunchKernel = launch;
  driver.cuStreamQuery = query;
  driver.cuStreamWaitValue64_v2 = wait_value;
  driver.cuEventRecord = record;
  driver.simgpu_set_slice = set_slice;
  driver.cuStreamSynchronize = [](CUstream stream) {
    wait_for_work(of(stream));
    return CUDA_SUCCESS;
  };
  driver.cuEventCreate = [](CUevent* event, unsigned) {
    const GpuContext& context = of(current_context());
    *event = reinterpret_cast<CUevent>(new GpuStream::Event{&context, context.ended});
    return CUDA_SUCCESS;
  };
  driver.cuEventDestroy_v2 = [](CUevent event) {
    of(event).destroyed = true;
    return CUDA_SUCCESS;
  };
  driver.cuStreamDestroy_v2 = [](CUstream stream) {
    end(of(stream));
    return CUDA_SUCCESS;
  };
  driver.cuCtxDestroy_v2 = end_context;
  driver.cuEventQuery = [](CUevent event) {
    return of(event).done == of(event).recorded ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
  };
  driver.cuEventElapsedTime = [](float* ms, CUevent from, CUevent to) {
    *ms = static_cast<float>(of(to).done_ns - of(from).done_ns) / 1e6F;
    return CUDA_SUCCESS;
  };
  driver.cuCtxGetCurrent = [](CUcontext* context) {
    *context = current_context();
    return CUDA_SUCCESS;
  };
  driver.cuCtxGetDevice = [](CUdevice* device) {
    *device = g_world->running().device;
    return CUDA_SUCCESS;
  };
  driver.cuStreamGetCtx = [](CUstream stream, CUcontext* context) {
    *context = reinterpret_cast<CUcontext>(of(stream).context);
    return CUDA_SUCCESS;
  };
  driver.cuCtxPushCurrent_v2 = [](CUcontext context) {
    g_fibers->current->contexts.push_back(&of(context));
    return CUDA_SUCCESS;
  };
  driver.cuCtxPopCurrent_v2 = [](CUcontext*) {
    g_fibers->current->contexts.pop_back();
    return CUDA_SUCCESS;
  };
  driver.cuDeviceGetName = [](char* name, int, CUdevice) {
    std::strcpy(name, "GPU");
    return CUDA_SUCCESS;
  };
  driver.cuDeviceGetUuid_v2 = [](CUuuid* uuid, CUdevice device) {
    uuid->bytes[0] = static_cast<char>(device + 1);
    return CUDA_SUCCESS;
  };
  driver.cuDeviceGetAttribute = [](int* value, CUdevice_attribute which, CUdevice) {
    *value = which == CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS ? 1 : 0;
    return CUDA_SUCCESS;
  };
  driver.cuDevicePrimaryCtxGetState = [](CUdevice, unsigned*, int* active) {
    *active = 1;
    return CUDA_SUCCESS;
  };
  driver.cuMemHostRegister_v2 = [](void*, std::size_t, unsigned) { return CUDA_SUCCESS; };
  driver.cuMemHostGetDevicePointer_v2 = [](CUdeviceptr* address, void* memory, unsigned) {
    *address = reinterpret_cast<CUdeviceptr>(memory);
    return CUDA_SUCCESS;
  };
  driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) { return CUDA_SUCCESS; };
  driver.cuStreamIsCapturing = [](CUstream, CUstreamCaptureStatus* status) {
    *status = CU_STREAM_CAPTURE_STATUS_NONE;
    return CUDA_SUCCESS;
  };
  return driver;
}

}  // namespace

bool GpuStream::advance(std::uint64_t now_ns) {
  bool ended = false;
  for (; !items.empty(); ended = true) {
    const Item& first = items.front();
    if (begun_ns == 0) begun_ns = std::max(free_ns, now_ns);
    const bool other_ended =
        first.other != nullptr && first.other->kernels_ended != first.other_ended;
    if (first.kind == Kind::kKernel && !other_ended && begun_ns + first.value > now_ns) break;
    if (first.word != nullptr && !has_come(first)) break;
    free_ns = first.kind == Kind::kKernel && !other_ended ? begun_ns + first.value : now_ns;
    if (first.kind == Kind::kKernel) ++kernels_ended;
    if (first.event != nullptr) first.event->done = std::max(first.event->done, first.value);
    if (first.event != nullptr) first.event->done_ns = free_ns;
    items.pop_front();
    begun_ns = 0;
    gave_up_ns = 0;
    if (!items.empty() && items.front().paced) ++since_closed;
  }
  return ended;
}

std::uint64_t GpuStream::next_ns() const {
  const bool runs = !items.empty() && items.front().kind == Kind::kKernel && begun_ns != 0;
  return runs ? begun_ns + items.front().value : kNever;
}

const std::vector<char>& fresh_globals() {
  static const std::vector<char> fresh = [] {
    auto& process = intercept::g_process;
    process.driver = simulated_driver();
    process.driver_ready.store(true);
    process.log_level.store(0);
    const auto* const at = reinterpret_cast<const char*>(&process);
    return std::vector<char>(at, at + sizeof(process));
  }();
  return fresh;
}

}  // namespace sluice::simulation
