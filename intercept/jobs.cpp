#include "intercept/jobs.hpp"

#include <algorithm>

#include "intercept/capture.hpp"
#include "intercept/poller.hpp"
#include "shm/clock.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {

constinit std::atomic<bool> g_explicit_jobs{false};
constinit thread_local Jobs::Last Jobs::t_last{nullptr, nullptr, 0};

namespace {

/// An address that is different for each thread, to tell their default streams apart.
const void* this_thread() noexcept {
  static constinit thread_local char mark = 0;
  return &mark;
}

}  // namespace

void Jobs::open_one() noexcept {
  if (open_++ != 0) return;
  auto& slot = board_.slots[static_cast<std::size_t>(slot_)];
  slot.job_since_ns.store(shm::monotonic_ns());
  shm::BoardView view(board_);
  shm::begin_job(view, slot_);
}

void Jobs::close_one() noexcept {
  if (open_ == 0 || --open_ != 0) return;
  shm::BoardView view(board_);
  shm::end_job(view, slot_);
}

void Jobs::begin() noexcept {
  const std::lock_guard lock(mutex_);
  open_one();
  if (transparent_) close_transparent();
}

void Jobs::end() noexcept {
  const std::lock_guard lock(mutex_);
  close_one();
}

void Jobs::open_transparent() noexcept {
  if (transparent_) return;
  transparent_ = true;
  launches_at_last_poll_ = launches();
  open_one();
  wake_poller();
}

void Jobs::close_transparent() noexcept {
  transparent_ = false;
  epoch_.fetch_add(1);
  close_one();
}

Jobs::Busy* Jobs::find(CUstream stream) noexcept {
  const void* thread = stream == CU_STREAM_PER_THREAD ? this_thread() : nullptr;
  const auto found = std::find_if(busy_.begin(), busy_.end(), [&](const Busy& busy) {
    return busy.stream == stream && busy.thread == thread;
  });
  return found == busy_.end() ? nullptr : &*found;
}

void Jobs::touch_slow(CUstream stream) noexcept {
  const std::lock_guard lock(mutex_);
  t_last = {this, stream, epoch_.load()};
  if (g_explicit_jobs.load()) return;
  if (find(stream) == nullptr) {
    CUcontext context = nullptr;
    driver().cuCtxGetCurrent(&context);
    const void* thread = stream == CU_STREAM_PER_THREAD ? this_thread() : nullptr;
    busy_.push_back({stream, thread, context, nullptr});
  }
  open_transparent();
}

void Jobs::touch_host_copy() noexcept {
  const std::lock_guard lock(mutex_);
  if (!g_explicit_jobs.load()) open_transparent();
}

void Jobs::mark_per_thread(CUstream stream) noexcept {
  if (g_explicit_jobs.load(std::memory_order_relaxed)) return;
  const std::lock_guard lock(mutex_);
  Busy* busy = transparent_ ? find(stream) : nullptr;
  if (busy == nullptr) return;
  const RelaxedCapture relaxed;
  const auto spare = std::find_if(spare_markers_.begin(), spare_markers_.end(),
                                  [busy](const auto& kept) { return kept.first == busy->context; });
  if (busy->marker == nullptr && spare != spare_markers_.end()) {
    busy->marker = spare->second;
    spare_markers_.erase(spare);
  }
  if (busy->marker == nullptr) driver().cuEventCreate(&busy->marker, CU_EVENT_DISABLE_TIMING);
  if (busy->marker != nullptr) driver().cuEventRecord(busy->marker, stream);
}

std::uint64_t Jobs::launches() const noexcept {
  std::uint64_t sum = 0;
  for (const shm::EntryCounters& entry : board_.slots[static_cast<std::size_t>(slot_)].entries) {
    sum += entry.launches();
  }
  return sum;
}

/// A launch counts itself before it looks at epoch_, and here epoch_ changes before the count is
/// read again: so either the launch is seen here, or it sees the new epoch and begins a job anew.
bool Jobs::nothing_since(std::uint64_t before) noexcept {
  if (launches() != before) return false;
  epoch_.fetch_add(1);
  return launches() == before;
}

void Jobs::put_away(const Busy& busy) noexcept {
  if (busy.marker != nullptr) spare_markers_.emplace_back(busy.context, busy.marker);
}

void Jobs::put_away_all() noexcept {
  for (const Busy& busy : busy_) put_away(busy);
  busy_.clear();
}

void Jobs::after_sync_all(std::uint64_t before) noexcept {
  const std::lock_guard lock(mutex_);
  if (!transparent_ || !nothing_since(before)) return;
  put_away_all();
  close_transparent();
}

void Jobs::after_sync(std::uint64_t before, CUstream stream) noexcept {
  const std::lock_guard lock(mutex_);
  if (!transparent_ || !nothing_since(before)) return;
  if (const Busy* busy = find(stream)) {
    put_away(*busy);
    busy_.erase(busy_.begin() + (busy - busy_.data()));
  }
  if (busy_.empty()) close_transparent();
}

void Jobs::poll() noexcept {
  const std::lock_guard lock(mutex_);
  if (!transparent_) return;
  const std::uint64_t now = launches();
  const bool launching = now != launches_at_last_poll_;
  launches_at_last_poll_ = now;
  // Work behind our own closed gate is not done, and asking about it may block in the driver.
  const auto& slot = board_.slots[static_cast<std::size_t>(slot_)];
  if (launching || syncing_.load() != 0 || slot.gate.load() != 0 || any_capture_open()) return;
  const RelaxedCapture relaxed;
  std::erase_if(busy_, [this](const Busy& busy) {
    if (busy.marker != nullptr) {
      const CUresult state = driver().cuEventQuery(busy.marker);
      if (state == CUDA_SUCCESS) put_away(busy);
      return state != CUDA_ERROR_NOT_READY;
    }
    if (busy.stream == CU_STREAM_PER_THREAD) return false;
    if (driver().cuCtxPushCurrent_v2(busy.context) != CUDA_SUCCESS) return true;
    const CUresult state = driver().cuStreamQuery(busy.stream);
    CUcontext popped = nullptr;
    driver().cuCtxPopCurrent_v2(&popped);
    return state != CUDA_ERROR_NOT_READY;
  });
  if (busy_.empty() && nothing_since(now)) close_transparent();
}

void Jobs::forget(CUstream stream) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(busy_, [stream](const Busy& busy) { return busy.stream == stream; });
  epoch_.fetch_add(1);
}

void Jobs::forget_all() noexcept {
  const std::lock_guard lock(mutex_);
  busy_.clear();
  spare_markers_.clear();  // they go with their context
  epoch_.fetch_add(1);
}

}  // namespace sluice::intercept
