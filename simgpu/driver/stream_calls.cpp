#include <algorithm>

#include "simgpu/driver/capture.hpp"
#include "simgpu/driver/driver.hpp"

using namespace sluice::simgpu;

namespace {

// A loop of queries must end when the GPU process is gone. The check is a system call, so only one
// query in 64 makes it.
bool lost_in_a_query_loop() {
  thread_local unsigned queries = 0;
  return ++queries % 64 == 0 && driver().connection.check_lost();
}

CUresult check_host_may_wait(Stream& stream) {
  const CUresult status = check_not_capturing(stream);
  return status == CUDA_SUCCESS ? check_unsafe_call() : status;
}

}  // namespace

CUresult cuStreamCreateWithPriority(CUstream* phStream, unsigned int flags, int priority) {
  return with_context([&](Context&) {
    if (phStream == nullptr || (flags & ~unsigned{CU_STREAM_NON_BLOCKING}) != 0) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    const std::shared_ptr<Context> context = current_context();
    pass_all_channels(*context);
    const ChannelKind kind =
        (flags & CU_STREAM_NON_BLOCKING) != 0 ? ChannelKind::kNonBlocking : ChannelKind::kBlocking;
    std::shared_ptr<Stream> stream =
        make_stream(driver().channels, context, kind, std::clamp(priority, -5, 0));
    if (!stream) return CUDA_ERROR_OUT_OF_MEMORY;
    stream->handle = driver().streams.add(stream);
    *phStream = stream->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamCreate(CUstream* phStream, unsigned int Flags) {
  return cuStreamCreateWithPriority(phStream, Flags, 0);
}

// Ends only the handle. Queued work continues.
CUresult cuStreamDestroy_v2(CUstream hStream) {
  if (const CUresult status = driver().usable(); status != CUDA_SUCCESS) return status;
  const std::shared_ptr<Stream> stream = driver().streams.take(hStream);
  if (!stream) return CUDA_ERROR_INVALID_HANDLE;
  abandon_capture(*stream);
  pass_all_channels(*stream->context);
  return CUDA_SUCCESS;
}
CUresult cuStreamDestroy(CUstream hStream) { return cuStreamDestroy_v2(hStream); }

CUresult cuStreamQuery(CUstream hStream) {
  return with_stream(hStream, [](Stream& stream) {
    if (const CUresult status = check_host_may_wait(stream); status != CUDA_SUCCESS) return status;
    if (stream.completed(stream.last_submitted())) return driver().usable();  // or a fault ended it
    return lost_in_a_query_loop() ? CUDA_ERROR_DEVICE_UNAVAILABLE : CUDA_ERROR_NOT_READY;
  });
}

CUresult cuStreamSynchronize(CUstream hStream) {
  return with_stream(hStream, [](Stream& stream) {
    if (const CUresult status = check_host_may_wait(stream); status != CUDA_SUCCESS) return status;
    return stream.wait(stream.last_submitted());
  });
}

CUresult cuStreamGetId(CUstream hStream, unsigned long long* streamId) {
  return with_stream(hStream, [&](Stream& stream) {
    if (streamId == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // Measured, and true in every capture mode: querying the id of a capturing stream ends the
    // capture.
    if (stream.capturing) return check_not_capturing(stream);
    *streamId = stream.id;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetCtx(CUstream hStream, CUcontext* pctx) {
  return with_stream(hStream, [&](Stream& stream) {
    if (pctx == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *pctx = stream.context->handle;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetDevice(CUstream hStream, CUdevice* device) {
  return with_stream(hStream, [&](Stream& stream) {
    if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *device = stream.context->device;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetFlags(CUstream hStream, unsigned int* flags) {
  return with_stream(hStream, [&](Stream& stream) {
    if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *flags = stream.flags;
    return CUDA_SUCCESS;
  });
}

CUresult cuStreamGetPriority(CUstream hStream, int* priority) {
  return with_stream(hStream, [&](Stream& stream) {
    if (priority == nullptr) return CUDA_ERROR_INVALID_VALUE;
    *priority = stream.priority;
    return CUDA_SUCCESS;
  });
}
