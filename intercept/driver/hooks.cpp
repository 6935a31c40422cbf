// The exported functions: one per line of hooks.def, each no more than its arguments. Those of
// captures and graphs are in hooks_graph.cpp.
#include "intercept/driver/driver_query.hpp"
#include "intercept/driver/hook.hpp"
#include "intercept/driver/primary_context.hpp"
#include "intercept/pacing/launch.hpp"

using namespace sluice::intercept;

namespace {

/// A context (null: perhaps any) has ended, with all it held; no question is asked meanwhile.
void context_ended(CUcontext context, const CaptureIds& captures) noexcept {
  captures_abandoned(captures);
  Interposer::instance().for_each_client([context](Client& client) {
    client.jobs().forget_context(context);
    client.pacer().forget_context(context);
  });
  EarlySwitch::forget_context(context);
}

template <class Call>
CUresult end_context(CUcontext context, Call call) noexcept {
  const QueryBan quiet = QueryBan::about_context(context);
  const CaptureIds captures = captures_of(context);
  const CUresult result = call();
  if (result == CUDA_SUCCESS) context_ended(context, captures);
  return result;
}

/// The last release of a primary context ends it; one before that is an everyday call beside
/// running work.
template <class Call>
CUresult let_go_of_primary(CUdevice device, Call call) noexcept {
  const CUcontext context = primary_context(device);
  const QueryBan quiet = QueryBan::about_context(context);
  const bool was_active = primary_is_active(device);
  const CaptureIds captures = captures_of(context);
  const CUresult result = call();
  if (result == CUDA_SUCCESS && was_active && !primary_is_active(device)) {
    context_ended(context, captures);
  }
  return result;
}

/// It ends nothing where the program uses contexts of its own alone.
template <class Call>
CUresult reset_primary(CUdevice device, Call call) noexcept {
  const CUcontext context = primary_context(device);
  if (context == nullptr && !primary_is_active(device)) return call();
  return end_context(context, call);
}

/// Null if the driver does not know it.
CUcontext context_of(CUgreenCtx green) noexcept {
  CUcontext context = nullptr;
  const bool known = driver().cuCtxFromGreenCtx != nullptr &&
                     driver().cuCtxFromGreenCtx(&context, green) == CUDA_SUCCESS;
  return known ? context : nullptr;
}

CUdevice device_of(CUcontext context) noexcept {
  CUdevice device = -1;
  if (context != nullptr && driver().cuCtxPushCurrent_v2(context) == CUDA_SUCCESS) {
    driver().cuCtxGetDevice(&device);
    driver().cuCtxPopCurrent_v2(&context);
  }
  return device;
}

/// One that the driver does not destroy.
bool is_default(CUstream stream) noexcept {
  return stream == nullptr || stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
}

template <class Call>
CUresult destroy_stream(CUstream stream, Call call) noexcept {
  if (is_default(stream)) return call();
  const QueryBan quiet = QueryBan::about_stream(stream);
  Interposer::instance().for_each_client([stream](Client& client) {
    client.jobs().forget(stream);
    client.pacer().forget(stream);
  });
  const CaptureIds captures = captures_of(stream);
  const CUresult result = call();
  if (result == CUDA_SUCCESS) captures_abandoned(captures);
  return result;
}

template <class Call>
CUresult new_context(CUdevice device, Call call) noexcept {
  const CUresult result = call();
  if (result == CUDA_SUCCESS) Interposer::instance().note_device(device);
  return result;
}

CUresult substituted(const char* symbol, void** found, CUresult result) noexcept {
  if (result == CUDA_SUCCESS && found != nullptr && *found != nullptr && symbol != nullptr) {
    *found = substitute(symbol, *found);
  }
  return result;
}

}  // namespace

// --- Launch -------------------------------------------------------------------------------------

#define SLUICE_LAUNCH_KERNEL(name, named)                                                       \
  SLUICE_EXPORT CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, \
                              unsigned by, unsigned bz, unsigned shared, CUstream stream,       \
                              void** params, void** extra) {                                    \
    return launch(                                                                              \
        Entry::name, named(stream),                                                             \
        [&] {                                                                                   \
          return Work{f, nullptr, {gx, gy, gz}, {bx, by, bz}, shared, false};                   \
        },                                                                                      \
        [&] {                                                                                   \
          return call_real(driver().name, f, gx, gy, gz, bx, by, bz, shared, stream, params,    \
                           extra);                                                              \
        });                                                                                     \
  }
SLUICE_LAUNCH_KERNEL(cuLaunchKernel, plain)
SLUICE_LAUNCH_KERNEL(cuLaunchKernel_ptsz, per_thread)

#define SLUICE_LAUNCH_EX(name, named)                                                    \
  SLUICE_EXPORT CUresult name(const CUlaunchConfig* config, CUfunction f, void** params, \
                              void** extra) {                                            \
    const CUstream stream = config == nullptr ? nullptr : config->hStream;               \
    return launch(                                                                       \
        Entry::name, named(stream), [&] { return work_of(config, f); },                  \
        [&] { return call_real(driver().name, config, f, params, extra); });             \
  }
SLUICE_LAUNCH_EX(cuLaunchKernelEx, plain)
SLUICE_LAUNCH_EX(cuLaunchKernelEx_ptsz, per_thread)

#define SLUICE_LAUNCH_COOPERATIVE(name, named)                                                  \
  SLUICE_EXPORT CUresult name(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, \
                              unsigned by, unsigned bz, unsigned shared, CUstream stream,       \
                              void** params) {                                                  \
    return launch(                                                                              \
        Entry::name, named(stream),                                                             \
        [&] {                                                                                   \
          return Work{f, nullptr, {gx, gy, gz}, {bx, by, bz}, shared, false};                   \
        },                                                                                      \
        [&] {                                                                                   \
          return call_real(driver().name, f, gx, gy, gz, bx, by, bz, shared, stream, params);   \
        });                                                                                     \
  }
SLUICE_LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, plain)
SLUICE_LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, per_thread)

#define SLUICE_LAUNCH_GRAPH(name, named)                            \
  SLUICE_EXPORT CUresult name(CUgraphExec graph, CUstream stream) { \
    return launch(                                                  \
        Entry::name, named(stream),                                 \
        [&] {                                                       \
          Work work;                                                \
          work.graph = graph;                                       \
          return work;                                              \
        },                                                          \
        [&] { return call_real(driver().name, graph, stream); });   \
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
  return synchronise_context(nullptr, [] { return call_real(driver().cuCtxSynchronize); });
}
SLUICE_EXPORT CUresult cuCtxSynchronize_v2(CUcontext context) {
  return synchronise_context(context,
                             [&] { return call_real(driver().cuCtxSynchronize_v2, context); });
}

#define SLUICE_SYNCHRONIZE(name, named)                                                         \
  SLUICE_EXPORT CUresult name(CUstream stream) {                                                \
    return synchronise_stream(named(stream), [&] { return call_real(driver().name, stream); }); \
  }
SLUICE_SYNCHRONIZE(cuStreamSynchronize, plain)
SLUICE_SYNCHRONIZE(cuStreamSynchronize_ptsz, per_thread)

// --- Lifetime -----------------------------------------------------------------------------------

SLUICE_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  return new_context(device, [&] {
    RetainPrimary retain(device);
    const CUresult result = call_real(driver().cuDevicePrimaryCtxRetain, context, device);
    if (result == CUDA_SUCCESS && context != nullptr) {
      note_primary_context(device, *context);
      retain.retained(*context);
    }
    return result;
  });
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

SLUICE_EXPORT CUresult cuGreenCtxCreate(CUgreenCtx* context, CUdevResourceDesc resources,
                                        CUdevice device, unsigned flags) {
  return new_context(device, [&] {
    return call_real(driver().cuGreenCtxCreate, context, resources, device, flags);
  });
}

#define SLUICE_END_CONTEXT(name)                                                    \
  SLUICE_EXPORT CUresult name(CUcontext context) {                                  \
    return end_context(context, [&] { return call_real(driver().name, context); }); \
  }
SLUICE_END_CONTEXT(cuCtxDestroy)
SLUICE_END_CONTEXT(cuCtxDestroy_v2)
SLUICE_END_CONTEXT(cuCtxDetach)

/// It holds the primary context, and may be the last that does.
SLUICE_EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx green) {
  const CUcontext context = context_of(green);
  return let_go_of_primary(device_of(context), [&] {
    return end_context(context, [&] { return call_real(driver().cuGreenCtxDestroy, green); });
  });
}

#define SLUICE_RELEASE_PRIMARY(name)                                                    \
  SLUICE_EXPORT CUresult name(CUdevice device) {                                        \
    return let_go_of_primary(device, [&] { return call_real(driver().name, device); }); \
  }
SLUICE_RELEASE_PRIMARY(cuDevicePrimaryCtxRelease)
SLUICE_RELEASE_PRIMARY(cuDevicePrimaryCtxRelease_v2)

#define SLUICE_RESET_PRIMARY(name)                                                  \
  SLUICE_EXPORT CUresult name(CUdevice device) {                                    \
    return reset_primary(device, [&] { return call_real(driver().name, device); }); \
  }
SLUICE_RESET_PRIMARY(cuDevicePrimaryCtxReset)
SLUICE_RESET_PRIMARY(cuDevicePrimaryCtxReset_v2)

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

SLUICE_EXPORT std::uint64_t sluice_v1_job_announce(std::uint64_t start_ns) {
  return Interposer::instance().announce_job(start_ns);
}

SLUICE_EXPORT void sluice_v1_job_cancel(std::uint64_t announced) {
  Interposer::instance().cancel_job(announced);
}

SLUICE_EXPORT std::uint64_t sluice_v1_job_begin(std::uint64_t announced) {
  return Interposer::instance().begin_job(announced);
}

SLUICE_EXPORT void sluice_v1_job_end(std::uint64_t job) { Interposer::instance().end_job(job); }

SLUICE_EXPORT int sluice_v1_attached() { return Interposer::instance().attached() ? 1 : 0; }
