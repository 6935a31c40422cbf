// How the end of a transparent job is found: by synchronising calls that return, and by queries.
#include <algorithm>
#include <utility>
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
///
/// `in_order`: also of launches that other processors have not written yet.
bool Jobs::nothing_since(std::uint64_t before, bool in_order) const noexcept {
  if (client_.launches() != before) return false;
  g_process.forget_remembered();
  if (in_order) order_launch_counts();
  return client_.launches() == before;
}

/// `covers`: whether the call has waited for the work of a stream.
template <class PutAway, class Covers>
void Jobs::Synchronising::finish(CUresult result, PutAway put_away, Covers covers) noexcept {
  jobs_.syncing_.leave();
  jobs_.client_.slot().syncs.fetch_add(1, std::memory_order_relaxed);
  if (result != CUDA_SUCCESS) return;
  const std::uint64_t now = wait_.since_ns != 0 ? base::monotonic_ns() : 0;
  const std::lock_guard lock(jobs_.mutex_);
  if (wait_.since_ns != 0) {
    jobs_.count_wait(wait_, now);
    jobs_.steps_.waited(wait_.given);
  }
  jobs_.stalled_.for_each([&](Stream& stalled) {
    if (covers(stalled)) jobs_.count_again(stalled);
  });
  if (jobs_.transparent_ && jobs_.nothing_since(before_, jobs_.ends_matter())) {
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
  close_transparent(by_wait, by_wait || ends_matter() ? 0 : end_by_wait(launches));
}

/// A forked child only writes to its own memory here; it has no polling thread.
void Jobs::unheld_wait_returned() noexcept {
  if (ends_matter() || !transparent_.load()) return;
  launches_at_return_.store(client_.launches());
  returned_ns_.store(base::monotonic_ns());
  if (!waited_.load() && !in_forked_child() && !waited_.exchange(true)) poller_.wake();
}

/// When the program had waited for its work, if it has launched nothing since; else 0. A poll that
/// comes seldom does not know when the work ended.
std::uint64_t Jobs::end_by_wait(std::uint64_t launches) const noexcept {
  return launches_at_return_.load() == launches ? returned_ns_.load() : 0;
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
  std::erase_if(asked, [this](const Asked& each) {
    const Answer answer = ask(each);
    return answer == Answer::kDone || answer == Answer::kCaptures;
  });
  const std::lock_guard lock(mutex_);
  if (asked.empty() || transparent_ || client_.launches() != launches_at_end_) return;
  for (const Asked& each : asked) {
    // A stream that was destroyed meanwhile is in no list any more.
    if (ended_.has(*each.stream)) busy_.add(*each.stream);
  }
  if (!busy_.empty()) open_transparent();
}

void Jobs::Synchronising::returned(CUresult result, Stream* stream) noexcept {
  const auto put_away = [&] {
    if (stream != nullptr && jobs_.busy_.has(*stream)) jobs_.ended_.add(*stream);
  };
  finish(result, put_away, [stream](const Stream& each) { return &each == stream; });
}

void Jobs::Synchronising::returned(CUresult result, CUcontext context) noexcept {
  const auto covers = [context](const Stream& each) { return each.context == context; };
  const auto put_away = [&] {
    jobs_.busy_.for_each([&](Stream& busy) {
      if (covers(busy)) jobs_.ended_.add(busy);
    });
  };
  finish(result, put_away, covers);
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
/// A capture that begins meanwhile waits for the query, unless it has no hook. A stream of which
/// another thread of ours asks already, for long, is not done: the driver would block this one too.
Jobs::Answer Jobs::ask(const Asked& asked) noexcept {
  const CUstream named = asked.handle == CU_STREAM_PER_THREAD ? CU_STREAM_LEGACY : asked.handle;
  if (DriverQuery::is_under_way(asked.context, named)) return Answer::kNotDone;
  const DriverQuery query(asked.context, named);
  // From here on whoever ends the stream or its context waits for the query. Both may have ended
  // before.
  {
    const std::lock_guard lock(mutex_);
    if (!query || !knows(asked)) return Answer::kNone;
  }
  if (driver().cuCtxPushCurrent_v2(asked.context) != CUDA_SUCCESS) return Answer::kDone;
  const bool captures = query_breaks_capture(named);
  const CUresult state = captures ? CUDA_SUCCESS : driver().cuStreamQuery(named);
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent_v2(&popped);
  if (captures) return Answer::kCaptures;
  return state == CUDA_ERROR_NOT_READY ? Answer::kNotDone : Answer::kDone;
}

/// Whether poll() may query streams now. Work behind our own closed gate is not done, and a query
/// of it may block in the driver. The caller holds the lock.
bool Jobs::may_ask(bool hinted) noexcept {
  constexpr std::uint64_t kLongWaitNs = 100'000'000;
  constexpr std::uint64_t kNextToWaitNs = 10'000'000;
  if (client_.gate_closed()) return false;
  const std::uint64_t now = base::monotonic_ns();
  if (syncing_.any()) {
    if (!ends_matter()) return false;
    if (syncing_.any_for_less_than(kLongWaitNs, now)) return false;
    if (!hinted && now - asked_ns_ < kNextToWaitNs) return false;
  }
  asked_ns_ = now;
  return true;
}

/// Queries with no lock held, so the answers may be out of date when it takes the lock again. Work
/// that was given meanwhile shows in the count, or in Stream::touched. One stream whose work is not
/// done, and that has made progress lately, keeps the job open, so those behind it are not asked.
void Jobs::poll(bool hinted) {
  if (!ends_matter()) {
    if (!waited_.load()) return;
  } else {
    look_back();
    look_at_stalled();
  }
  std::uint64_t version = 0;
  std::uint64_t launches = 0;
  std::vector<Asked> asked;
  {
    const std::lock_guard lock(mutex_);
    note_progress_time();
    if (!transparent_) return;
    launches = client_.launches();
    const bool launched = launches != std::exchange(launches_at_last_poll_, launches);
    if (launched) steps_.launched(base::monotonic_ns());
    if (launched) prepare_window(base::monotonic_ns());
    if ((launched && !hinted) || !may_ask(hinted)) return;
    busy_.for_each([&](Stream& stream) {
      asked.emplace_back(stream);
      quiet_ns(stream);  // from now on, also of a stream that is not asked yet
    });
    version = g_process.version.fetch_add(1) + 1;
  }
  const RelaxedCapture relaxed;
  std::vector<Asked> done;
  std::vector<Asked> not_done;
  const bool all_asked = std::all_of(asked.begin(), asked.end(), [&](const Asked& each) {
    const Answer answer = ask(each);
    if (answer == Answer::kDone) done.push_back(each);
    if (answer == Answer::kNotDone) not_done.push_back(each);
    const std::lock_guard lock(mutex_);
    return answer == Answer::kDone || (answer == Answer::kNotDone && is_quiet(*each.stream));
  });
  const std::lock_guard lock(mutex_);
  if (!transparent_ || !nothing_since(launches, true)) return;
  const auto unchanged = [&](const Asked& each) {
    return busy_.has(*each.stream) && each.stream->touched < version;
  };
  const bool others_ended = all_asked && std::exchange(ended_at_launches_, launches) != launches;
  for (const Asked& each : not_done) {
    if (!unchanged(each)) continue;
    if (others_ended) outlives(*each.stream);
    if (is_stalled(*each.stream)) put_aside(*each.stream);
  }
  for (const Asked& each : done) {
    if (unchanged(each)) ended_.add(*each.stream);
  }
  if (!steps_.in_flight(base::monotonic_ns())) end_if_done(false, launches);
}

}  // namespace sluice::intercept
