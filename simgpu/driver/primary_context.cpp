#include "simgpu/driver/context_table.hpp"
#include "simgpu/driver/driver.hpp"

using namespace sluice::simgpu;

namespace {

template <typename F>
CUresult with_primary(CUdevice dev, F&& call) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (dev < 0 || static_cast<std::size_t>(dev) >= driver().visible.size()) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  const std::lock_guard lock(driver().primary.mutex);
  return call(driver().primary.by_device[dev]);
}

bool is_active(const PrimaryContexts::State& state) {
  return state.context && !state.context->destroyed;
}

void end(PrimaryContexts::State& state) {
  if (is_active(state)) destroy_context(state.context);
}

CUresult start(PrimaryContexts::State& state, CUdevice dev) {
  if (is_active(state)) return CUDA_SUCCESS;
  if (state.context) return start_context(state.context);
  std::shared_ptr<Context> made;
  const CUresult status = make_context(dev, state.flags, true, made);
  if (status == CUDA_SUCCESS) state.context = made;
  return status;
}

}  // namespace

CUresult cuDevicePrimaryCtxRetain(CUcontext* pctx, CUdevice dev) {
  return with_primary(dev, [&](PrimaryContexts::State& state) {
    if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const CUresult status = start(state, dev);
    if (status != CUDA_SUCCESS) return status;
    ++state.references;
    *pctx = state.context->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev) {
  return with_primary(dev, [](PrimaryContexts::State& state) {
    if (state.references == 0) return CUDA_ERROR_INVALID_CONTEXT;
    if (--state.references == 0) end(state);
    return CUDA_SUCCESS;
  });
}
CUresult cuDevicePrimaryCtxRelease(CUdevice dev) { return cuDevicePrimaryCtxRelease_v2(dev); }

// The references stay. The next retain restores the context under its old handle.
CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev) {
  return with_primary(dev, [](PrimaryContexts::State& state) {
    end(state);
    return CUDA_SUCCESS;
  });
}
CUresult cuDevicePrimaryCtxReset(CUdevice dev) { return cuDevicePrimaryCtxReset_v2(dev); }

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int* flags, int* active) {
  return with_primary(dev, [&](PrimaryContexts::State& state) {
    if (flags != nullptr) *flags = state.flags;
    if (active != nullptr) *active = is_active(state) ? 1 : 0;
    return CUDA_SUCCESS;
  });
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags) {
  return with_primary(dev, [&](PrimaryContexts::State& state) {
    state.flags = flags;
    return CUDA_SUCCESS;
  });
}
CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags) {
  return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}
