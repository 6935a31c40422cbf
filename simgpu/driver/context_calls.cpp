#include "simgpu/driver/capture.hpp"
#include "simgpu/driver/context_table.hpp"
#include "simgpu/driver/driver.hpp"

using namespace sluice::simgpu;

namespace {

CUresult synchronise(Context& context) {
  const CUresult status = check_no_capture_in(context);
  return status == CUDA_SUCCESS ? drain(context) : status;
}

CUresult create(CUcontext* pctx, unsigned flags, CUdevice dev) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  const CUresult status = make_context(dev, flags, false, context);
  if (status != CUDA_SUCCESS) return status;
  *pctx = context->handle;
  context_stack().push_back(context);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult cuCtxCreate(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create(pctx, flags, dev);
}
CUresult cuCtxCreate_v2(CUcontext* pctx, unsigned int flags, CUdevice dev) {
  return create(pctx, flags, dev);
}
CUresult cuCtxCreate_v3(CUcontext* pctx, CUexecAffinityParam*, int numParams, unsigned int flags,
                        CUdevice dev) {
  return numParams != 0 ? CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY : create(pctx, flags, dev);
}
CUresult cuCtxCreate_v4(CUcontext* pctx, CUctxCreateParams* ctxCreateParams, unsigned int flags,
                        CUdevice dev) {
  const bool special = ctxCreateParams != nullptr && (ctxCreateParams->numExecAffinityParams != 0 ||
                                                      ctxCreateParams->cigParams != nullptr);
  return special ? CUDA_ERROR_NOT_SUPPORTED : create(pctx, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext ctx) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::shared_ptr<Context> context = driver().contexts.find(ctx);
  if (!context || context->primary) return CUDA_ERROR_INVALID_CONTEXT;
  destroy_context(context);
  if (!context_stack().empty() && context_stack().back() == context) context_stack().pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxDestroy(CUcontext ctx) { return cuCtxDestroy_v2(ctx); }
/// There is no call that attaches, so the first detach is the last.
CUresult cuCtxDetach(CUcontext ctx) { return cuCtxDestroy_v2(ctx); }

/// Stands for the kernel module's control of a channel group's time slice: sets that of all
/// contexts that this process has on the device. Zero: as at their start. Under MPS the channel
/// groups are the server's.
extern "C" __attribute__((visibility("default"))) CUresult sluice_simgpu_set_slice(
    CUdevice dev, std::uint64_t us) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (driver().mps.joined()) return CUDA_ERROR_NOT_SUPPORTED;
  bool any = false;
  for (const std::shared_ptr<Context>& context : driver().contexts.all()) {
    if (!context || context->device != dev || context->destroyed) continue;
    Request request;
    request.kind = RequestKind::kSetSlice;
    request.id = context->id;
    request.a = us;
    if (!driver().connection.request(request)) return CUDA_ERROR_INVALID_VALUE;
    any = true;
  }
  return any ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

CUresult cuGreenCtxCreate(CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned int) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGreenCtxDestroy(CUgreenCtx) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult cuCtxSetCurrent(CUcontext ctx) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::shared_ptr<Context> context = driver().contexts.find(ctx);
  if (ctx != nullptr && !context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context_stack().empty()) context_stack().pop_back();
  if (context) context_stack().push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = context_stack().empty() ? nullptr : context_stack().back()->handle;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::shared_ptr<Context> context = driver().contexts.find(ctx);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  context_stack().push_back(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext ctx) { return cuCtxPushCurrent_v2(ctx); }

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (context_stack().empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = context_stack().back()->handle;
  context_stack().pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent(CUcontext* pctx) { return cuCtxPopCurrent_v2(pctx); }

CUresult cuCtxGetDevice(CUdevice* device) {
  return with_context([&](Context& context) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = context.device;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetDevice_v2(CUdevice* device, CUcontext ctx) {
  if (ctx == nullptr) return cuCtxGetDevice(device);
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::shared_ptr<Context> context = driver().contexts.find(ctx);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *device = context->device;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext ctx, unsigned long long* ctxId) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::shared_ptr<Context> context =
      ctx == nullptr ? current_context() : driver().contexts.find(ctx);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  if (ctxId == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *ctxId = context->id;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetFlags(unsigned int* flags) {
  return with_context([&](Context& context) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = context.flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxGetApiVersion(CUcontext ctx, unsigned int* version) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (ctx != nullptr && !driver().contexts.find(ctx)) return CUDA_ERROR_INVALID_CONTEXT;
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 3020;
  return CUDA_SUCCESS;
}

CUresult cuCtxGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  return with_context([&](Context&) {
    if (leastPriority != nullptr) *leastPriority = 0;
    if (greatestPriority != nullptr) *greatestPriority = -5;
    return CUDA_SUCCESS;
  });
}

CUresult cuCtxSynchronize() {
  return with_context([](Context& context) { return synchronise(context); });
}

CUresult cuCtxSynchronize_v2(CUcontext ctx) {
  if (ctx == nullptr) return cuCtxSynchronize();
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::shared_ptr<Context> context = driver().contexts.find(ctx);
  return context ? synchronise(*context) : CUDA_ERROR_INVALID_CONTEXT;
}
