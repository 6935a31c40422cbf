// How the end of a transparent job is found: by synchronising calls that return, and by queries.
#include <algorithm>
#include <vector>

#include "base/clock.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/driver/process.hpp"
#include "intercept/jobs/jobs.hpp"
#include "intercept/pacing/captures.hpp"
#include "intercept/pacing/launch_count.hpp"

namespace sluice::intercept {

/// Whether no launch has come since the count was `before`. A launch counts itself and then reads
/// the version; here the version changes first, and then the count is read again. So either the
/// launch is seen here, or it sees the new version and begins a job anew.
bool Jobs::nothing_since(std::uint64_t before) const noexcept {
  if (client_.launches() != before) return false;
  g_process.forget_remembered();
  if (ends_matter()) order_launch_counts();
  return client_.launches() == before;
}

template <class PutAway>
void Jobs::Synchronising::finish(CUresult result, PutAway put_away) noexcept {
  jobs_.syncing_.leave();
  jobs_.client_.slot().syncs.fetch_add(1, std::memory_order_relaxed);
  if (result != CUDA_SUCCESS) return;
  const std::uint64_t now = wait_.since_ns != 0 ? base::monotonic_ns() : 0;
  const std::lock_guard lock(jobs_.mutex_);
  if (wait_.since_ns != 0) {
    jobs_.count_wait(wait_, now);
    jobs_.steps_.waited(wait_.given);
  }
  if (jobs_.transparent_ && jobs_.nothing_since(before_)) {
    put_away();
    jobs_.end_if_done(true, before_);
  }
  if (wait_.since_ns != 0) jobs_.end_step(wait_, now);
}

/// `by_wait`: the program has waited for the work of the job. `launches`: as many have been made.
void Jobs::end_if_done(bool by_wait, std::uint64_t launches) noexcept {
  if (!busy_.empty()) return;
  looks_left_ = kLooks;
  launches_at_end_ = launches;
  close_transparent(by_wait);
}

/// A launch may have counted itself, and still be inside the driver, when its job ended (the driver
/// loads a kernel at its first launch, for example). So the streams of an ended job are queried a
/// few times more. Work in one of them begins a job again.
void Jobs::look_back() {
  std::vector<Asked> asked;
  {
    const std::lock_guard lock(mutex_);
    if (transparent_ || looks_left_ == 0) return;
    --looks_left_;
    if (client_.launches() != launches_at_end_ || syncing_.any() || client_.gate_closed()) return;
    ended_.for_each([&](Stream& stream) { asked.emplace_back(stream); });
  }
  const RelaxedCapture relaxed;
  std::erase_if(asked, [this](const Asked& each) { return is_done(each).value_or(true); });
  const std::lock_guard lock(mutex_);
  if (asked.empty() || transparent_ || client_.launches() != launches_at_end_) return;
  for (const Asked& each : asked) {
    // A stream that was destroyed meanwhile is in no list any more.
    if (ended_.has(*each.stream)) busy_.add(*each.stream);
  }
  if (!busy_.empty()) open_transparent();
}

void Jobs::Synchronising::returned(CUresult result, Stream* stream) noexcept {
  finish(result, [&] {
    if (stream != nullptr && jobs_.busy_.has(*stream)) jobs_.ended_.add(*stream);
  });
}

void Jobs::Synchronising::returned(CUresult result, CUcontext context) noexcept {
  finish(result, [&] {
    jobs_.busy_.for_each([&](Stream& busy) {
      if (busy.context == context) jobs_.ended_.add(busy);
    });
  });
}

/// Whether the stream has not been forgotten since it was copied. A driver may crash in a context
/// that has ended.
bool Jobs::knows(const Asked& asked) const noexcept {
  const Stream& stream = *asked.stream;
  return stream.list != nullptr && stream.context == asked.context &&
         stream.key.handle == asked.handle;
}

/// No other thread can refer to a thread's own default stream. The legacy stream is not done before
/// a thread's default stream is (measured on one H100, driver 580), and a query of it makes nobody
/// wait.
///
/// Nothing if the stream captures. A capture that begins meanwhile waits for the query, unless it
/// has no hook.
std::optional<bool> Jobs::is_done(const Asked& asked) noexcept {
  const CUstream named = asked.handle == CU_STREAM_PER_THREAD ? CU_STREAM_LEGACY : asked.handle;
  const DriverQuery query(asked.context, named);
  // From here on whoever ends the stream or its context waits for the query. Both may have ended
  // before.
  {
    const std::lock_guard lock(mutex_);
    if (!query || !knows(asked)) return false;
  }
  if (driver().cuCtxPushCurrent_v2(asked.context) != CUDA_SUCCESS) return true;
  const bool captures = query_breaks_capture(named);
  const CUresult state = captures ? CUDA_SUCCESS : driver().cuStreamQuery(named);
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent_v2(&popped);
  if (captures) return std::nullopt;
  return state != CUDA_ERROR_NOT_READY;
}

/// Queries with no lock held, so the answers may be out of date when it takes the lock again. Work
/// that was given meanwhile shows in the count, or in Stream::touched. One stream whose work is not
/// done keeps the job open, so those behind it are not asked.
void Jobs::poll(bool hinted) {
  if (!ends_matter()) return;
  look_back();
  std::uint64_t version = 0;
  std::vector<Asked> asked;
  {
    const std::lock_guard lock(mutex_);
    if (!transparent_) return;
    const bool launched = client_.launches() != launches_at_last_poll_;
    const bool launching = !hinted && launched;
    if (launched) steps_.launched(base::monotonic_ns());
    launches_at_last_poll_ = client_.launches();
    // Work behind our own closed gate is not done, and a query of it may block in the driver.
    if (launching || syncing_.any() || client_.gate_closed()) return;
    busy_.for_each([&](Stream& stream) { asked.emplace_back(stream); });
    version = g_process.version.fetch_add(1) + 1;
  }
  const RelaxedCapture relaxed;
  const auto open = std::find_if(asked.begin(), asked.end(), [this](const Asked& each) {
    return !is_done(each).value_or(false);
  });
  const std::lock_guard lock(mutex_);
  if (!transparent_ || !nothing_since(launches_at_last_poll_)) return;
  std::for_each(asked.begin(), open, [&](const Asked& done) {
    if (busy_.has(*done.stream) && done.stream->touched < version) ended_.add(*done.stream);
  });
  if (!steps_.in_flight(base::monotonic_ns())) end_if_done(false, launches_at_last_poll_);
}

}  // namespace sluice::intercept
