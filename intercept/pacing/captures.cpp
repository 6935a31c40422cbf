#include "intercept/pacing/captures.hpp"

#include <mutex>
#include <new>

#include "intercept/driver/threads.hpp"

namespace sluice::intercept {

/// A stream has at most one, so there are no more of them than streams.
struct Capture {
  CUstream origin = nullptr;  ///< The stream on which it began and must end.
  ContextId context;
  pid_t thread = 0;  ///< The thread that began it.
  std::uint64_t number = 0;
  Capture* next = nullptr;
};

namespace {

/// Whether it began on the stream to which the calling thread, in its current context, refers by
/// this handle.
bool is_of(const Capture& capture, CUstream stream, CUcontext context) noexcept {
  return capture.origin == stream &&
         (stream != CU_STREAM_PER_THREAD ||
          (capture.thread == thread_id() && capture.context.handle == context));
}

/// The caller holds the lock.
template <class Which>
void erase_where(Which which) noexcept {
  for (Capture** at = &g_process.captures.first; *at != nullptr;) {
    Capture* const capture = *at;
    if (!which(*capture)) {
      at = &capture->next;
      continue;
    }
    *at = capture->next;
    delete capture;
    g_process.captures.open.fetch_sub(1);
  }
}

std::uint64_t last_begun() noexcept {
  if (!any_capture_open() || in_forked_child()) return 0;
  const std::lock_guard lock(g_process.captures.mutex);
  return g_process.captures.begun;
}

}  // namespace

bool is_capturing(CUstream stream) noexcept {
  if (driver().cuStreamIsCapturing == nullptr) return false;  // then this process never attaches
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver().cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

/// For the legacy stream beside the capture of a blocking stream, the driver answers with an error
/// that breaks nothing.
bool query_breaks_capture(CUstream stream) noexcept {
  if (!any_capture_open()) return false;
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver().cuStreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

void captures_are_unseen() noexcept {
  if (g_process.captures.unseen.exchange(true)) return;
  g_process.captures.open.fetch_add(1);
  g_process.forget_remembered();
}

void capture_begun(CUstream stream) noexcept {
  if (!is_capturing(stream)) return;
  Capture* const made =
      new (std::nothrow) Capture{stream, identify(context_of(stream)), thread_id(), 0, nullptr};
  if (made == nullptr) return captures_are_unseen();
  const std::lock_guard lock(g_process.captures.mutex);
  erase_where([=](const Capture& before) { return is_of(before, stream, made->context.handle); });
  made->number = ++g_process.captures.begun;
  made->next = g_process.captures.first;
  g_process.captures.first = made;
  g_process.captures.open.fetch_add(1);
}

/// An end on the wrong stream or thread does not end the capture.
void capture_ended(CUstream stream) noexcept {
  if (!any_capture_open() || is_capturing(stream)) return;
  const CUcontext context = context_of(stream);
  const std::lock_guard lock(g_process.captures.mutex);
  erase_where([=](const Capture& capture) { return is_of(capture, stream, context); });
}

EndingCaptures captures_of(CUstream stream) noexcept { return {stream, {}, last_begun()}; }

EndingCaptures captures_of(const ContextId& context) noexcept {
  return {nullptr, context, last_begun()};
}

void captures_abandoned(const EndingCaptures& ending) noexcept {
  if (ending.last == 0) return;
  const std::lock_guard lock(g_process.captures.mutex);
  erase_where([&ending](const Capture& capture) {
    return capture.number <= ending.last &&
           (ending.stream == nullptr || capture.origin == ending.stream) &&
           ending.context.ends(capture.context);
  });
}

}  // namespace sluice::intercept
