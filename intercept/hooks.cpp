// The exported functions: one per line of hooks.def, each no more than its arguments.
#include "intercept/launch.hpp"

#define SLUICE_EXPORT extern "C" __attribute__((visibility("default")))

using namespace sluice::intercept;

namespace {

/// Stream 0 of a per-thread entry is the thread's own default stream: our calls name it so.
CUstream per_thread(CUstream stream) noexcept {
  return stream == nullptr ? CU_STREAM_PER_THREAD : stream;
}
CUstream plain(CUstream stream) noexcept { return stream; }

/// A real entry that this driver is too old to have.
template <class Function, class... Args>
CUresult call_real(Function function, Args... args) noexcept {
  return function == nullptr ? CUDA_ERROR_NOT_SUPPORTED : function(args...);
}

CUresult destroy_context(CUresult result) noexcept {
  if (result == CUDA_SUCCESS) {
    Process::instance().for_each_client([](Client& client) { client.pacer().forget_all(); });
  }
  return result;
}

/// Before the call: what we remember must not be asked about while it goes.
void context_ends() noexcept {
  Process::instance().for_each_client([](Client& client) { client.jobs().forget_all(); });
}

template <class Call>
CUresult destroy_stream(CUstream stream, Call call) noexcept {
  Process::instance().for_each_client([stream](Client& client) {
    client.jobs().forget(stream);
    client.pacer().forget(stream);
  });
  return call();
}

template <class Call>
CUresult new_context(CUdevice device, Call call) noexcept {
  const CUresult result = call();
  if (result == CUDA_SUCCESS) Process::instance().note_device(device);
  return result;
}

template <class Call>
CUresult begin_capture(CUstream stream, bool into_graph, Call call) noexcept {
  const CUresult result = call();
  if (result == CUDA_SUCCESS) capture_begun(stream, into_graph);
  return result;
}

template <class Call>
CUresult end_capture(CUstream stream, CUgraph* graph, Call call) noexcept {
  const Ending ending = capture_ending(stream);
  const CUresult result = call();
  const bool captured = result == CUDA_SUCCESS && graph != nullptr;
  capture_ended(ending, stream, captured ? *graph : nullptr);
  return result;
}

/// Some graphs may not hold a wait node (device-launchable ones, for instance): they are
/// instantiated without, and are preemptible only in front.
template <class Call>
CUresult instantiate(CUgraph graph, Call call) noexcept {
  const CUresult result = call(graph);
  if (result == CUDA_SUCCESS) return result;
  const CUgraph bare = clone_without_waits(graph);
  if (bare == nullptr) return result;
  const CUresult second = call(bare);
  driver().cuGraphDestroy(bare);
  // Not our nodes' fault: then what the program learns of it must be about its own graph.
  if (second != CUDA_SUCCESS) return call(graph);
  report_bare_graph();
  return second;
}

CUresult substituted(const char* symbol, void** found, CUresult result) noexcept {
  if (result == CUDA_SUCCESS && found != nullptr && *found != nullptr && symbol != nullptr) {
    *found = substitute(symbol, *found);
  }
  return result;
}

}  // namespace

// --- Launch -------------------------------------------------------------------------------------

#define SLUICE_LAUNCH_KERNEL(name, named)                                                        \
  SLUICE_EXPORT CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,  \
                              unsigned by, unsigned bz, unsigned shared, CUstream stream,        \
                              void** params, void** extra) {                                     \
    return launch(Entry::name, named(stream), nullptr, [&] {                                     \
      return call_real(driver().name, f, gx, gy, gz, bx, by, bz, shared, stream, params, extra); \
    });                                                                                          \
  }
SLUICE_LAUNCH_KERNEL(cuLaunchKernel, plain)
SLUICE_LAUNCH_KERNEL(cuLaunchKernel_ptsz, per_thread)

#define SLUICE_LAUNCH_EX(name, named)                                                    \
  SLUICE_EXPORT CUresult name(const CUlaunchConfig* config, CUfunction f, void** params, \
                              void** extra) {                                            \
    const CUstream stream = config == nullptr ? nullptr : config->hStream;               \
    return launch(Entry::name, named(stream), config,                                    \
                  [&] { return call_real(driver().name, config, f, params, extra); });   \
  }
SLUICE_LAUNCH_EX(cuLaunchKernelEx, plain)
SLUICE_LAUNCH_EX(cuLaunchKernelEx_ptsz, per_thread)

#define SLUICE_LAUNCH_COOPERATIVE(name, named)                                                  \
  SLUICE_EXPORT CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, \
                              unsigned by, unsigned bz, unsigned shared, CUstream stream,       \
                              void** params) {                                                  \
    return launch(Entry::name, named(stream), nullptr, [&] {                                    \
      return call_real(driver().name, f, gx, gy, gz, bx, by, bz, shared, stream, params);       \
    });                                                                                         \
  }
SLUICE_LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, plain)
SLUICE_LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, per_thread)

#define SLUICE_LAUNCH_GRAPH(name, named)                                    \
  SLUICE_EXPORT CUresult name(CUgraphExec graph, CUstream stream) {         \
    return launch(Entry::name, named(stream), nullptr,                      \
                  [&] { return call_real(driver().name, graph, stream); }); \
  }
SLUICE_LAUNCH_GRAPH(cuGraphLaunch, plain)
SLUICE_LAUNCH_GRAPH(cuGraphLaunch_ptsz, per_thread)

// --- CopyIn -------------------------------------------------------------------------------------

#define SLUICE_COPY(name, named)                                               \
  SLUICE_EXPORT CUresult name(CUdeviceptr to, const void* from, size_t size) { \
    return copy_in(named(nullptr), true,                                       \
                   [&] { return call_real(driver().name, to, from, size); });  \
  }
SLUICE_COPY(cuMemcpyHtoD_v2, plain)
SLUICE_COPY(cuMemcpyHtoD_v2_ptds, per_thread)

#define SLUICE_COPY_ASYNC(name, named)                                                          \
  SLUICE_EXPORT CUresult name(CUdeviceptr to, const void* from, size_t size, CUstream stream) { \
    return copy_in(named(stream), false,                                                        \
                   [&] { return call_real(driver().name, to, from, size, stream); });           \
  }
SLUICE_COPY_ASYNC(cuMemcpyHtoDAsync_v2, plain)
SLUICE_COPY_ASYNC(cuMemcpyHtoDAsync_v2_ptsz, per_thread)

// --- Sync ---------------------------------------------------------------------------------------

SLUICE_EXPORT CUresult cuCtxSynchronize(void) {
  return synchronise_context([] { return call_real(driver().cuCtxSynchronize); });
}
SLUICE_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context) {
  return synchronise_context([&] { return call_real(driver().cuCtxSynchronize_v2, context); });
}

#define SLUICE_SYNCHRONIZE(name, named)                                                         \
  SLUICE_EXPORT CUresult name(CUstream stream) {                                                \
    return synchronise_stream(named(stream), [&] { return call_real(driver().name, stream); }); \
  }
SLUICE_SYNCHRONIZE(cuStreamSynchronize, plain)
SLUICE_SYNCHRONIZE(cuStreamSynchronize_ptsz, per_thread)

// --- Capture ------------------------------------------------------------------------------------

#define SLUICE_BEGIN_CAPTURE_V1(name, named)                                                      \
  SLUICE_EXPORT CUresult name(CUstream stream) {                                                  \
    return begin_capture(named(stream), false, [&] { return call_real(driver().name, stream); }); \
  }
SLUICE_BEGIN_CAPTURE_V1(cuStreamBeginCapture, plain)
SLUICE_BEGIN_CAPTURE_V1(cuStreamBeginCapture_ptsz, per_thread)

#define SLUICE_BEGIN_CAPTURE(name, named)                                         \
  SLUICE_EXPORT CUresult name(CUstream stream, CUstreamCaptureMode mode) {        \
    return begin_capture(named(stream), false,                                    \
                         [&] { return call_real(driver().name, stream, mode); }); \
  }
SLUICE_BEGIN_CAPTURE(cuStreamBeginCapture_v2, plain)
SLUICE_BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, per_thread)

#define SLUICE_BEGIN_CAPTURE_TO_GRAPH(name, named)                                             \
  SLUICE_EXPORT CUresult name(CUstream stream, CUgraph graph, const CUgraphNode* dependencies, \
                              const CUgraphEdgeData* edges, size_t count,                      \
                              CUstreamCaptureMode mode) {                                      \
    return begin_capture(named(stream), true, [&] {                                            \
      return call_real(driver().name, stream, graph, dependencies, edges, count, mode);        \
    });                                                                                        \
  }
SLUICE_BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph, plain)
SLUICE_BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph_ptsz, per_thread)

#define SLUICE_END_CAPTURE(name, named)                                          \
  SLUICE_EXPORT CUresult name(CUstream stream, CUgraph* graph) {                 \
    return end_capture(named(stream), graph,                                     \
                       [&] { return call_real(driver().name, stream, graph); }); \
  }
SLUICE_END_CAPTURE(cuStreamEndCapture, plain)
SLUICE_END_CAPTURE(cuStreamEndCapture_ptsz, per_thread)

// --- Graph --------------------------------------------------------------------------------------

#define SLUICE_INSTANTIATE_LOG(name)                                                     \
  SLUICE_EXPORT CUresult name(CUgraphExec* exec, CUgraph graph, CUgraphNode* error_node, \
                              char* log, size_t log_size) {                              \
    return instantiate(graph, [&](CUgraph from) {                                        \
      return call_real(driver().name, exec, from, error_node, log, log_size);            \
    });                                                                                  \
  }
SLUICE_INSTANTIATE_LOG(cuGraphInstantiate)
SLUICE_INSTANTIATE_LOG(cuGraphInstantiate_v2)

SLUICE_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph,
                                                   unsigned long long flags) {
  return instantiate(graph, [&](CUgraph from) {
    return call_real(driver().cuGraphInstantiateWithFlags, exec, from, flags);
  });
}

#define SLUICE_INSTANTIATE_PARAMS(name)                                                     \
  SLUICE_EXPORT CUresult name(CUgraphExec* exec, CUgraph graph,                             \
                              CUDA_GRAPH_INSTANTIATE_PARAMS* params) {                      \
    return instantiate(                                                                     \
        graph, [&](CUgraph from) { return call_real(driver().name, exec, from, params); }); \
  }
SLUICE_INSTANTIATE_PARAMS(cuGraphInstantiateWithParams)
SLUICE_INSTANTIATE_PARAMS(cuGraphInstantiateWithParams_ptsz)

SLUICE_EXPORT CUresult cuGraphDestroy(CUgraph graph) {
  graph_destroyed(graph);
  return call_real(driver().cuGraphDestroy, graph);
}

// --- Lifetime -----------------------------------------------------------------------------------

SLUICE_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return new_context(device,
                     [&] { return call_real(driver().cuDevicePrimaryCtxRetain, context, device); });
}

#define SLUICE_CREATE_CONTEXT(name)                                                               \
  SLUICE_EXPORT CUresult name(CUcontext* context, unsigned flags, CUdevice device) {              \
    return new_context(device, [&] { return call_real(driver().name, context, flags, device); }); \
  }
SLUICE_CREATE_CONTEXT(cuCtxCreate)
SLUICE_CREATE_CONTEXT(cuCtxCreate_v2)

SLUICE_EXPORT CUresult cuCtxCreate_v3(CUcontext* context, CUexecAffinityParam* params, int count,
                                      unsigned flags, CUdevice device) {
  return new_context(device, [&] {
    return call_real(driver().cuCtxCreate_v3, context, params, count, flags, device);
  });
}

SLUICE_EXPORT CUresult cuCtxCreate_v4(CUcontext* context, CUctxCreateParams* params, unsigned flags,
                                      CUdevice device) {
  return new_context(
      device, [&] { return call_real(driver().cuCtxCreate_v4, context, params, flags, device); });
}

#define SLUICE_DESTROY_STREAM(name)                                                  \
  SLUICE_EXPORT CUresult name(CUstream stream) {                                     \
    return destroy_stream(stream, [&] { return call_real(driver().name, stream); }); \
  }
SLUICE_DESTROY_STREAM(cuStreamDestroy)
SLUICE_DESTROY_STREAM(cuStreamDestroy_v2)

#define SLUICE_END_CONTEXT(name, type)                       \
  SLUICE_EXPORT CUresult name(type which) {                  \
    context_ends();                                          \
    return destroy_context(call_real(driver().name, which)); \
  }
SLUICE_END_CONTEXT(cuCtxDestroy, CUcontext)
SLUICE_END_CONTEXT(cuCtxDestroy_v2, CUcontext)
SLUICE_END_CONTEXT(cuDevicePrimaryCtxRelease, CUdevice)
SLUICE_END_CONTEXT(cuDevicePrimaryCtxRelease_v2, CUdevice)
SLUICE_END_CONTEXT(cuDevicePrimaryCtxReset, CUdevice)
SLUICE_END_CONTEXT(cuDevicePrimaryCtxReset_v2, CUdevice)

// --- Lookup -------------------------------------------------------------------------------------
// The real one answers first; what it found is replaced by address. So version and per-thread
// flag are right without guessing, and a lookup of the lookup itself needs no special case.

SLUICE_EXPORT CUresult cuGetProcAddress(const char* symbol, void** found, int version,
                                        cuuint64_t flags) {
  return substituted(symbol, found,
                     call_real(driver().cuGetProcAddress, symbol, found, version, flags));
}

SLUICE_EXPORT CUresult cuGetProcAddress_v2(const char* symbol, void** found, int version,
                                           cuuint64_t flags,
                                           CUdriverProcAddressQueryResult* status) {
  return substituted(
      symbol, found,
      call_real(driver().cuGetProcAddress_v2, symbol, found, version, flags, status));
}

// --- The C API of sluice.h ----------------------------------------------------------------------

SLUICE_EXPORT std::uint64_t sluice_v1_job_begin(std::uint64_t /*announced*/) {
  return Process::instance().begin_job();
}

SLUICE_EXPORT void sluice_v1_job_end(std::uint64_t job) { Process::instance().end_job(job); }

SLUICE_EXPORT int sluice_v1_attached() { return Process::instance().attached() ? 1 : 0; }
