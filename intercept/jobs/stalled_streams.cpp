// Streams that make no progress keep no job open: a stream may wait for the program itself.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/driver/log.hpp"
#include "intercept/driver/process.hpp"
#include "intercept/jobs/jobs.hpp"

namespace sluice::intercept {

/// While this client is held, or stopped, no stream of it makes progress. That time does not count,
/// however often it comes. The caller holds the lock.
void Jobs::note_progress_time() noexcept {
  constexpr std::uint64_t kMostNs = 20'000'000;  // polls are closer, unless this process is stopped
  const std::uint64_t now = base::monotonic_ns();
  const std::uint64_t passed = now - std::exchange(polled_ns_, now);
  const bool open = !client_.gate_closed();
  if (std::exchange(was_open_, open) && open) ran_ns_ += std::min(passed, kMostNs);
}

/// For how long the stream could have made progress and has made none, since this was first asked
/// after its progress. The caller holds the lock.
std::uint64_t Jobs::quiet_ns(Stream& stream) const noexcept {
  const std::uint64_t progress_ns = stream.sampler.progress_ns(stream.given_ns);
  if (std::exchange(stream.progress_ns, progress_ns) != progress_ns) stream.quiet_from_ns = ran_ns_;
  return ran_ns_ - stream.quiet_from_ns;
}

bool Jobs::is_quiet(Stream& stream) const noexcept {
  constexpr std::uint64_t kQuietNs = 100'000'000;
  return ends_matter() && quiet_ns(stream) >= kQuietNs;
}

/// All else that the program has given is done, and the stream's work is not: were it not for the
/// stream, a job would have ended. The caller holds the lock.
void Jobs::outlives(Stream& stream) noexcept {
  const std::uint64_t progress_ns = stream.sampler.progress_ns(stream.given_ns);
  if (std::exchange(stream.outlives_from_ns, progress_ns) != progress_ns) stream.outlived = 0;
  ++stream.outlived;
}

/// Whether the stream has had work for max_hold and has made no progress; or for 2 s, in which
/// other work came and ended 16 times, while a sample shows that nothing of the stream ended: then
/// the requests of the program do not wait for it.
/// The caller holds the lock.
bool Jobs::is_stalled(Stream& stream) const noexcept {
  constexpr std::uint64_t kOutlivesNs = 2'000'000'000;
  constexpr std::uint64_t kOutlives = 16;
  const std::uint64_t limit = client_.seat().board.max_hold_ns.load();
  if (limit == 0 || !ends_matter()) return false;
  const bool outlives = stream.outlived >= kOutlives && stream.sampler.under_way() &&
                        stream.outlives_from_ns == stream.sampler.progress_ns(stream.given_ns);
  return quiet_ns(stream) >= (outlives ? std::min(limit, kOutlivesNs) : limit);
}

void Jobs::put_aside(Stream& stream) noexcept {
  stalled_.add(stream);
  any_stalled_.store(true);
  show_stalled();
  // The end of the job is not the end of its work.
  if (trials_.runs()) close_without_trial();
  law_.skip();
  if (std::exchange(said_stalled_, true)) return;
  Line(Level::kWarn) << "a stream of this process has made no progress for "
                     << quiet_ns(stream) / 1'000'000
                     << " ms: it holds nobody until it makes progress";
}

/// For status. A stream that is stalled no more is seen at the next look.
void Jobs::show_stalled() noexcept {
  std::uint32_t count = 0;
  stalled_.for_each([&count](Stream&) { ++count; });
  client_.slot().stalled_streams.store(count, std::memory_order_relaxed);
}

/// The stream makes progress again, so its work is a job.
void Jobs::count_again(Stream& stream) noexcept {
  StreamList::remove(stream);
  if (g_process.explicit_jobs.load()) return;
  open_transparent();
  busy_.add(stream);
}

/// Whether a stalled stream that is given more work is still one.
bool Jobs::stays_stalled(Stream& stream) noexcept {
  if (is_stalled(stream)) return true;
  StreamList::remove(stream);
  return false;
}

/// A stream whose work is done, and that was given none meanwhile, is forgotten.
void Jobs::look_at_stalled() {
  if (!any_stalled_.load()) return;
  std::uint64_t version = 0;
  std::uint64_t launches = 0;
  std::vector<Asked> asked;
  {
    const std::lock_guard lock(mutex_);
    any_stalled_.store(!stalled_.empty());
    show_stalled();
    if (stalled_.empty() || client_.gate_closed()) return;
    launches = client_.launches();
    stalled_.for_each([&](Stream& stream) { asked.emplace_back(stream); });
    version = g_process.version.fetch_add(1) + 1;
  }
  const RelaxedCapture relaxed;
  for (const Asked& each : asked) {
    const Answer answer = ask(each);
    const std::lock_guard lock(mutex_);
    Stream& stream = *each.stream;
    if (!stalled_.has(stream) || !knows(each)) continue;
    if (answer == Answer::kDone && stream.touched < version && nothing_since(launches, true)) {
      StreamList::remove(stream);
    } else if (answer == Answer::kDone || !is_stalled(stream)) {
      count_again(stream);
    }
  }
}

}  // namespace sluice::intercept
