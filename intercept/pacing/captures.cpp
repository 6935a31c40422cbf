#include "intercept/pacing/captures.hpp"

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "intercept/driver/threads.hpp"

namespace sluice::intercept {

struct Capture {
  CUstream origin = nullptr;  ///< The stream on which it began and must end.
  CUcontext context = nullptr;
  pid_t thread = 0;  ///< The thread that began it.
  bool any_thread_may_end = false;
};

struct Captures {
  std::mutex mutex;
  std::unordered_map<cuuint64_t, Capture> open;  ///< By capture id.
};

namespace {

/// Never destroyed: the program's exit handlers may still end captures. If two threads both make
/// them, one of the two is dropped.
Captures& captures() noexcept {
  if (Captures* const known = g_process.captures.load()) return *known;
  auto made = std::make_unique<Captures>();
  Captures* before = nullptr;
  if (!g_process.captures.compare_exchange_strong(before, made.get())) return *before;
  return *made.release();
}

struct Info {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  cuuint64_t id = 0;
};

Info info_of(CUstream stream) noexcept {
  Info info;
  if (driver().cuStreamGetCaptureInfo_v2 == nullptr) return info;  // older than CUDA 11.3
  driver().cuStreamGetCaptureInfo_v2(stream, &info.status, &info.id, nullptr, nullptr, nullptr);
  return info;
}

/// The caller holds the lock.
template <class Which>
bool erase_where(Which which) noexcept {
  const std::size_t erased = std::erase_if(
      captures().open, [&](const auto& entry) { return which(entry.first, entry.second); });
  g_process.open_captures.fetch_sub(static_cast<int>(erased));
  return erased != 0;
}

template <class Which>
CaptureIds open_where(Which which) noexcept {
  CaptureIds ids;
  if (!any_capture_open() || in_forked_child()) return ids;
  const std::lock_guard lock(captures().mutex);
  for (const auto& [id, capture] : captures().open) {
    if (which(capture)) ids.push_back(id);
  }
  return ids;
}

}  // namespace

bool is_capturing(CUstream stream) noexcept {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  return driver().cuStreamIsCapturing(stream, &status) == CUDA_SUCCESS &&
         status != CU_STREAM_CAPTURE_STATUS_NONE;
}

bool any_capture_lives() noexcept {
  if (!any_capture_open()) return false;
  const std::lock_guard lock(captures().mutex);
  erase_where([](cuuint64_t, const Capture& capture) {
    // A thread's default stream ends with the thread.
    const bool abandoned = !capture.any_thread_may_end || capture.origin == CU_STREAM_PER_THREAD;
    return abandoned && ThreadMarks::is_gone(capture.thread);
  });
  return any_capture_open();
}

void capture_begun(CUstream stream, CUstreamCaptureMode mode) noexcept {
  const Info info = info_of(stream);
  if (info.status == CU_STREAM_CAPTURE_STATUS_NONE) return;
  const CUcontext context = current_context();
  const bool relaxed = mode == CU_STREAM_CAPTURE_MODE_RELAXED;
  const std::lock_guard lock(captures().mutex);
  captures().open[info.id] = {stream, context, thread_id(), relaxed};
  g_process.open_captures.store(static_cast<int>(captures().open.size()));
}

CaptureIds captures_of(CUstream stream) noexcept {
  return open_where([stream](const Capture& capture) { return capture.origin == stream; });
}

CaptureIds captures_of(CUcontext context) noexcept {
  return open_where([context](const Capture& capture) {
    return context == nullptr || capture.context == context;
  });
}

void captures_abandoned(const CaptureIds& ids) noexcept {
  if (ids.empty()) return;
  const std::lock_guard lock(captures().mutex);
  erase_where([&](cuuint64_t id, const Capture&) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  });
}

Ending capture_ending(CUstream stream) noexcept {
  const Info info = info_of(stream);
  return {info.status, info.id};
}

void capture_ended(const Ending& ending, CUstream stream) noexcept {
  // An end on the wrong stream or thread does not end the capture.
  if (ending.status == CU_STREAM_CAPTURE_STATUS_NONE || is_capturing(stream)) return;
  const std::lock_guard lock(captures().mutex);
  if (erase_where([&](cuuint64_t id, const Capture&) { return id == ending.id; })) return;
  // The driver reports no id for a broken capture.
  const pid_t thread = thread_id();
  erase_where([&](cuuint64_t, const Capture& capture) {
    return capture.origin == stream && (stream != CU_STREAM_PER_THREAD || capture.thread == thread);
  });
}

}  // namespace sluice::intercept
