#include "simgpu/driver/context.hpp"

#include <algorithm>

#include "simgpu/driver/capture.hpp"
#include "simgpu/driver/context_table.hpp"
#include "simgpu/driver/driver.hpp"

namespace sluice::simgpu {
namespace {

thread_local std::vector<std::shared_ptr<Context>> context_stack;

}  // namespace

std::shared_ptr<Context> current_context() {
  return context_stack.empty() ? nullptr : context_stack.back();
}

std::vector<std::shared_ptr<Stream>> Context::live_streams() {
  std::vector<std::shared_ptr<Stream>> live;
  const std::lock_guard lock(mutex);
  std::erase_if(streams, [&](const std::weak_ptr<Stream>& weak) {
    auto stream = weak.lock();
    if (stream) live.push_back(std::move(stream));
    return weak.expired();
  });
  return live;
}

void Context::pass_all_channels() {
  for (const auto& stream : live_streams()) stream->last_submitted();
}

CUresult Context::drain() {
  for (const auto& stream : live_streams()) {
    const CUresult status = stream->wait(stream->last_submitted());
    if (status != CUDA_SUCCESS) return status;
  }
  return CUDA_SUCCESS;
}

CUresult start_context(const std::shared_ptr<Context>& context) {
  static std::atomic<std::uint32_t> next_id = 1;
  Driver& d = driver();
  context->id = next_id++;
  Request request;
  request.kind = RequestKind::kCreateContext;
  request.id = context->id;
  request.a = d.visible[static_cast<std::size_t>(context->device)];
  if (!d.connection.request(request)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  context->legacy = make_stream(context, ChannelKind::kLegacy, 0);
  if (!context->legacy) return CUDA_ERROR_OUT_OF_MEMORY;
  context->destroyed = false;
  return CUDA_SUCCESS;
}

CUresult make_context(CUdevice device, unsigned flags, bool primary,
                      std::shared_ptr<Context>& context) {
  Driver& d = driver();
  if (device < 0 || static_cast<std::size_t>(device) >= d.visible.size()) {
    return CUDA_ERROR_INVALID_DEVICE;
  }
  context = std::make_shared<Context>();
  context->device = device;
  context->flags = flags;
  context->primary = primary;
  const CUresult status = start_context(context);
  if (status == CUDA_SUCCESS) context->handle = d.contexts.add(context);
  return status;
}

void destroy_context(const std::shared_ptr<Context>& context) {
  Driver& d = driver();
  context->destroyed = true;
  Request request;
  request.kind = RequestKind::kDestroyContext;
  request.id = context->id;
  d.connection.request(request);
  const auto belongs = [&](const auto& object) { return object.context == context; };
  d.streams.take_if(belongs);
  d.events.take_if(belongs);
  d.functions.take_if(belongs);
  d.modules.take_if(belongs);
  d.memory.forget_context(context->id);
  std::shared_ptr<Stream> legacy;
  {
    const std::lock_guard lock(context->mutex);
    legacy.swap(context->legacy);
  }
  // A primary context that is created again has its old handle, and programs may still hold that
  // handle.
  if (!context->primary) d.contexts.take(context->handle);
}

}  // namespace sluice::simgpu

using namespace sluice::simgpu;

namespace {

CUresult synchronise(Context& context) {
  const CUresult status = check_no_capture_in(context);
  return status == CUDA_SUCCESS ? context.drain() : status;
}

CUresult create(CUcontext* pctx, unsigned flags, CUdevice dev) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<Context> context;
  const CUresult status = make_context(dev, flags, false, context);
  if (status != CUDA_SUCCESS) return status;
  *pctx = context->handle;
  context_stack.push_back(context);
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
  if (!context_stack.empty() && context_stack.back() == context) context_stack.pop_back();
  return CUDA_SUCCESS;
}
CUresult cuCtxDestroy(CUcontext ctx) { return cuCtxDestroy_v2(ctx); }
/// There is no call that attaches, so the first detach is the last.
CUresult cuCtxDetach(CUcontext ctx) { return cuCtxDestroy_v2(ctx); }

CUresult cuGreenCtxCreate(CUgreenCtx*, CUdevResourceDesc, CUdevice, unsigned int) {
  return CUDA_ERROR_NOT_SUPPORTED;
}
CUresult cuGreenCtxDestroy(CUgreenCtx) { return CUDA_ERROR_NOT_SUPPORTED; }

CUresult cuCtxSetCurrent(CUcontext ctx) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::shared_ptr<Context> context = driver().contexts.find(ctx);
  if (ctx != nullptr && !context) return CUDA_ERROR_INVALID_CONTEXT;
  if (!context_stack.empty()) context_stack.pop_back();
  if (context) context_stack.push_back(context);
  return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext* pctx) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *pctx = context_stack.empty() ? nullptr : context_stack.back()->handle;
  return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::shared_ptr<Context> context = driver().contexts.find(ctx);
  if (!context) return CUDA_ERROR_INVALID_CONTEXT;
  context_stack.push_back(context);
  return CUDA_SUCCESS;
}
CUresult cuCtxPushCurrent(CUcontext ctx) { return cuCtxPushCurrent_v2(ctx); }

CUresult cuCtxPopCurrent_v2(CUcontext* pctx) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  if (context_stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (pctx != nullptr) *pctx = context_stack.back()->handle;
  context_stack.pop_back();
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
