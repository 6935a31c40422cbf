#include "simgpu/driver/context_table.hpp"

#include "simgpu/driver/driver.hpp"

namespace sluice::simgpu {

CUresult start_context(const std::shared_ptr<Context>& context) {
  static std::atomic<std::uint32_t> next_id = 1;
  Driver& d = driver();
  context->id = next_id++;
  Request request;
  request.kind = RequestKind::kCreateContext;
  request.id = context->id;
  request.a = d.visible[static_cast<std::size_t>(context->device)];
  if (!d.connection.request(request)) return CUDA_ERROR_DEVICE_UNAVAILABLE;
  context->legacy = make_stream(d.channels, context, ChannelKind::kLegacy, 0);
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
