#include "intercept/pacing/pacer.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "intercept/driver/driver_query.hpp"
#include "intercept/driver/process.hpp"
#include "intercept/trace/trace.hpp"

namespace sluice::intercept {

/// An unknown duration counts as longer than most kernels of large models. With a greater value,
/// the launch would hardly ever run next to a program that always has the next job announced, and
/// so would stay unknown.
constexpr std::uint64_t kUnknownNs = 2'000'000;

/// Ends when another policy comes into force, because under that policy other threads may keep the
/// stream from ever being idle, and when the launch has to be refused. Time with a closed gate does
/// not count: earlier waits of a device policy may then hold the work in the stream, as hold()
/// would hold the launch.
///
/// After a wait that took too long, nobody waits for the stream again until it has made progress:
/// the program may be waiting for its own later launch. What blocks one stream often blocks others,
/// so they are not each waited for that long.
template <class Query>
Waited Pacer::wait(Stream& stream, shm::TraceHold why, shm::Policy policy, Query query) noexcept {
  constexpr std::uint64_t kLongestNextToStuckNs = 100'000'000;
  if (stream.stuck.load()) return ask_stuck(stream, query);
  const std::uint64_t longest_ns =
      stuck_streams_.load() == 0 ? kLongestDriverWaitNs : kLongestNextToStuckNs;
  Trace* const traced = g_process.trace.load();
  const std::uint64_t begin = traced == nullptr ? 0 : base::monotonic_ns();
  const auto waits = [&] { return client_.is_under(policy) && !client_.orders().refuse(); };
  const Waited waited =
      wait_for_driver([&] { return waits() ? query() : CUDA_SUCCESS; },
                      [&] { return client_.obeys() && client_.gate_closed(); }, longest_ns);
  if (traced != nullptr) traced->hold(why, begin, 0, 0);
  if (waited == Waited::kTooLong && !stream.stuck.exchange(true)) {
    stuck_streams_.fetch_add(1);
    client_.skipped_wait(why);
  }
  return waited;
}

void Pacer::wait_for_all(Stream& stream, shm::TraceHold why, const shm::Policy& policy,
                         CUstream named) noexcept {
  wait(stream, why, policy, [&] { return driver().cuStreamQuery(named); });
}

template <class Query>
Waited Pacer::ask_stuck(Stream& stream, Query query) noexcept {
  const RelaxedCapture relaxed;
  const NoCancel whole;
  const CUresult state = query();
  if (state == CUDA_ERROR_NOT_READY) return Waited::kTooLong;
  no_longer_stuck(stream);
  return state == CUDA_SUCCESS ? Waited::kDone : Waited::kFailed;
}

void Pacer::no_longer_stuck(Stream& stream) noexcept {
  if (stream.stuck.exchange(false)) stuck_streams_.fetch_sub(1);
}

inline void Pacer::tell_status(const LaunchDuration* duration, std::uint32_t ns,
                               bool graph) noexcept {
  shm::Slot& slot = client_.slot();
  const auto raise = [ns](shm::Word& word) {
    if (word.load(std::memory_order_relaxed) < ns) word.store(ns, std::memory_order_relaxed);
  };
  if (ns == LaunchDuration::kUnbounded) {
    slot.unknown_launches.fetch_add(1, std::memory_order_relaxed);
  } else if (!duration->preemptible()) {
    raise(slot.longest_launch_ns);
    if (graph) raise(slot.ungated_graph_ns);
  }
}

/// Learning goes on until 4096 launches in a row were known, even while no client of higher
/// priority lives, so that the first critical job finds durations known.
inline void Pacer::note_known(bool known) noexcept {
  constexpr std::uint32_t kEnough = 4096;
  if (!known) {
    known_in_a_row_.store(0, std::memory_order_relaxed);
  } else if (known_in_a_row_.fetch_add(1, std::memory_order_relaxed) == kEnough) {
    client_.set_learning(false);
  }
}

/// The sample begins after the wait, so that it contains no time at a closed gate.
[[gnu::always_inline]] inline bool Pacer::begin_sample(Stream& stream, LaunchDuration* duration,
                                                       CUstream named) noexcept {
  if (client_.learning()) note_known(duration == nullptr || duration->settled());
  if (duration == nullptr || !stream.sampler.begin(*duration, named, *stream.pools)) return false;
  stream.sampler.begun_while(client_.others_quiet(), client_.quiet_in_own_job());
  return true;
}

/// A launch that another thread gives the same stream meanwhile may take the hot path, so only the
/// client's counts show it.
void Pacer::measure(Stream& stream, CUstream named, const Work& work, std::uint32_t launches,
                    Place& place) noexcept {
  LaunchDuration* const kind = durations_.find(work);
  if (kind == nullptr) return;
  const bool wanted = gpu_time_.add(*kind, launches);
  if (!wanted || place.sampled != nullptr ||
      !stream.sampler.begin_wanted(*kind, named, *stream.pools))
    return;
  stream.sampler.begun_while(client_.others_quiet(), client_.quiet_in_own_job());
  place.sampled = kind;
  place.launches_before = client_.launches();
}

/// While jobs are announced, a launch that would not end before the next job waits for enough
/// slack. A launch that is shorter than the spacing needs none: the gate closes that much earlier.
inline void Pacer::wait_for_slack(const LaunchDuration* duration, bool graph, CUstream named,
                                  std::uint64_t spacing_ns) noexcept {
  if (client_.shared().announced.load(std::memory_order_relaxed) == 0) return;
  if (graph && duration != nullptr && duration->preemptible()) return;
  const std::uint32_t ns =
      duration == nullptr ? LaunchDuration::kUnbounded : duration->longest_ns();
  if (ns > spacing_ns) {
    memory_.wait_for_slack(named, ns == LaunchDuration::kUnbounded ? kUnknownNs : ns);
  }
}

/// Returns the launch's number (Place). The caller holds the lock.
inline std::uint32_t Pacer::count(Stream& stream, shm::Spacing spacing) noexcept {
  if (stream.launches == 2 * spacing.count) stream.launches = 0;
  return ++stream.launches;
}

/// There is one account for all streams, because what may still run when the gate closes is the sum
/// of what each stream was given since its last wait.
///
/// A wait takes the GPU 2.2 us and bounds only the work of its own stream. Where many streams have
/// short kernels, one kernel of each exceeds the spacing already. A wait in front of each launch
/// would then bound nothing more, and take most of the GPU: a stream of short kernels has had a
/// part of the spacing before it gets one.
inline void Pacer::add_to_account(Stream& stream, std::uint64_t ns, std::uint64_t spacing_ns,
                                  Due& due) noexcept {
  constexpr std::uint64_t kParts = 10;
  const std::uint64_t run_ns = run_ns_.load(std::memory_order_relaxed);
  const bool has_part = std::max(stream.run_ns, ns) * kParts > spacing_ns;
  due.wait = due.wait || (has_part && run_ns + ns > spacing_ns);
  stream.idle = false;
  stream.account = &run_ns_;
  if (!due.wait) {
    run_ns_.fetch_add(ns, std::memory_order_relaxed);
    stream.run_ns += ns;
    return;
  }
  ++stream.accounts;
  const std::uint64_t own_ns = std::exchange(stream.run_ns, ns);
  due.others_ran = run_ns_.fetch_add(ns - own_ns) != own_ns;
}

/// Adds the launch to the account, and says whether a wait is due in front of it; `always`: one is
/// in any case. The caller holds the lock.
[[gnu::always_inline]] inline Pacer::Due Pacer::spend(Stream& stream, const Work& work, bool always,
                                                      std::uint64_t spacing_ns) noexcept {
  Due due{false, durations_.find_in_turn(work, stream.previous)};
  if (!client_.may_be_held()) return due;
  const std::uint32_t ns =
      due.duration == nullptr ? LaunchDuration::kUnbounded : due.duration->ns();
  tell_status(due.duration, ns, work.graph != nullptr);
  due.wait = always;
  add_to_account(stream, std::min<std::uint64_t>(ns, spacing_ns + 1), spacing_ns, due);
  return due;
}

[[gnu::always_inline]] inline void Pacer::before_device(Entry entry, Stream& stream, CUstream named,
                                                        const Work& work, Place& place,
                                                        bool held) noexcept {
  const shm::Spacing spacing = place.policy.spacing;
  const bool graph = work.graph != nullptr;
  const bool in_time = spacing.is_time();
  Due due;
  {
    const std::lock_guard lock(stream.lock);
    stream.set_policy(place.policy);
    const bool always = held || stream.owes_wait;
    if (in_time) {
      due = spend(stream, work, always, spacing.ns());
    } else {
      // A graph has many kernels, so it never shares a spacing with other launches, and the first
      // wait inside may be far from its beginning.
      place.number = count(stream, spacing);
      due.wait = place.begins_group() || always || graph;
      place.number = 0;  // nothing is due at the end of a group
    }
  }
  if (place.policy.ahead_us != 0 && client_.may_be_held()) {
    bound_run_ahead(stream, due.duration, named, place.policy);
  }
  if (due.others_ran) write_off_idle(stream);
  // This wait comes first: the gate is read after it, and closes before the slack becomes
  // sufficient again.
  if (in_time && client_.outranked()) wait_for_slack(due.duration, graph, named, spacing.ns());
  if (in_time && client_.takes_turns()) [[unlikely]] {
    place.marks_end = note_work(stream, due.duration, due.wait, graph, spacing.ns());
  }
  if (due.wait) put_wait(entry, stream, named, graph && !in_time);
  if (in_time && begin_sample(stream, due.duration, named)) place.sampled = due.duration;
}

/// A launch of unknown duration counts as much as the time between two marks, so that few of them
/// are queued.
void Pacer::bound_run_ahead(Stream& stream, const LaunchDuration* duration, CUstream named,
                            const shm::Policy& policy) noexcept {
  const std::uint64_t bound_ns = policy.ahead_ns();
  const std::uint32_t known = duration == nullptr ? LaunchDuration::kUnbounded : duration->ns();
  const std::uint64_t ns = known == LaunchDuration::kUnbounded ? bound_ns / 4 : known;
  if (!stream.run_ahead.add(ns, bound_ns, named, stream.pools->plain)) {
    wait_for_all(stream, shm::TraceHold::kAhead, policy, named);
    return stream.run_ahead.forget_marks();
  }
  for (;;) {
    const RunAhead::Wait next = stream.run_ahead.must_wait(bound_ns);
    if (next.event == nullptr) return;
    const Waited waited = wait(stream, shm::TraceHold::kAhead, policy,
                               [&] { return driver().cuEventQuery(next.event); });
    if (waited == Waited::kTooLong) return stream.run_ahead.forget_marks();
    if (client_.orders().refuse() || !client_.is_under(policy)) return;
    stream.run_ahead.passed(next);
  }
}

void Pacer::before(Entry entry, Stream& stream, CUstream named, const Work& work, Place& place,
                   bool held) noexcept {
  place.policy = client_.policy();
  place.number = 0;
  if (place.policy.spacing.count == 0) return;
  if (place.policy.waits_on_device()) {
    return before_device(entry, stream, named, work, place, held);
  }
  {
    const std::lock_guard lock(stream.lock);
    stream.set_policy(place.policy);
    place.number = count(stream, place.policy.spacing);
  }
  if (place.policy.between() == shm::Between::kEventGroup && place.begins_group())
    begin_group(stream, place);
}

/// Removes idle streams from the account: if a stream was given nothing for 100 ms, its last work
/// has run or is behind a wait. Otherwise that work would count indefinitely, and each launch into
/// another stream would get a wait.
void Pacer::write_off_idle(const Stream& own) noexcept {
  constexpr std::uint64_t kLongNs = 100'000'000;
  const std::uint64_t now = base::monotonic_ns();
  std::uint64_t last = written_off_ns_.load();
  if (client_.gate_closed()) return written_off_ns_.store(now);  // it runs only when the gate opens
  if (now - last < kLongNs || !written_off_ns_.compare_exchange_strong(last, now)) return;
  streams_.for_each([&](Stream& other) {
    if (&other == &own || other.pacer != this) return;
    const std::unique_lock lock(other.lock, std::try_to_lock);
    if (!lock.owns_lock()) return;  // a thread is launching into it
    if (std::exchange(other.idle, true)) empty_account(other);
  });
}

/// The caller holds the lock of the stream.
void Pacer::empty_account(Stream& stream) noexcept {
  ++stream.accounts;
  run_ns_.fetch_sub(std::exchange(stream.run_ns, 0));
}

Pacer::Spent Pacer::spent(Stream& stream) noexcept {
  if (!client_.may_be_held()) return {};
  const std::lock_guard lock(stream.lock);
  return {stream.run_ns, stream.accounts};
}

void Pacer::has_run(Stream& stream, const Spent& spent) noexcept {
  if (spent.ns == 0) return;
  const std::lock_guard lock(stream.lock);
  if (stream.accounts != spent.account) return;  // a wait, or another stream, has begun a new one
  stream.run_ns -= spent.ns;
  run_ns_.fetch_sub(spent.ns);
}

void Pacer::all_has_run(CUcontext context) noexcept {
  if (run_ns_.load(std::memory_order_relaxed) == 0) return;
  streams_.for_each([&](Stream& stream) {
    if (stream.pacer != this || stream.context != context) return;
    const std::unique_lock lock(stream.lock, std::try_to_lock);
    if (lock.owns_lock()) empty_account(stream);  // else a thread is launching into it
  });
}

int Pacer::arrivals_index(Stream& stream) noexcept {
  int index = stream.arrivals.load(std::memory_order_relaxed);
  if (index >= 0) return index;
  const int taken = memory_.arrivals().take_index();
  if (taken < 0) return taken;
  if (!stream.arrivals.compare_exchange_strong(index, taken)) {
    memory_.arrivals().give_back(taken);  // another thread launches into the stream too
    return index;
  }
  if (stream.lives.load()) return taken;
  memory_.arrivals().give_back(stream.arrivals.exchange(-1));  // end() may have come before
  return -1;
}

/// How long the GPU is busy with the launch at most, from the wait in front of it on. Waits inside
/// a graph are the spacing apart. Returns whether the end of the launch should be marked: a kernel
/// that is long, or may be, shall be charged for as long as it runs. A launch behind it has a wait
/// in front. The GPU may stop inside a graph, before its end.
[[gnu::cold]] bool Pacer::note_work(Stream& stream, const LaunchDuration* duration,
                                    bool behind_wait, bool graph,
                                    std::uint64_t spacing_ns) noexcept {
  constexpr std::uint64_t kLongNs = 1'000'000;  // a mark takes the GPU 2 us
  const int index = arrivals_index(stream);
  if (index < 0) return false;
  std::uint64_t ns = duration == nullptr ? LaunchDuration::kUnbounded : duration->ns();
  const bool known = ns != LaunchDuration::kUnbounded;
  if (!known) ns = kUnknownNs;
  if (graph && duration != nullptr && duration->preemptible()) ns = spacing_ns;
  memory_.arrivals().add_work(index, ns, known, behind_wait);
  return !graph && ns > std::max(kLongNs, spacing_ns);
}

[[gnu::cold]] void Pacer::mark_end(Stream& stream, CUstream named) noexcept {
  const NoCancel whole;
  const int index = arrivals_index(stream);
  if (index >= 0 && memory_.write_arrival(named, index)) memory_.arrivals().end_is_marked(index);
}

[[gnu::cold]] void Pacer::write_arrival(Stream& stream, CUstream named) noexcept {
  const int index = arrivals_index(stream);
  if (index >= 0) memory_.write_arrival(named, index);
}

/// Remembers a refused wait as owed: the next launch of the stream tries again. The launch itself
/// was counted as gated and is recounted as kBypassRefusedWait.
void Pacer::put_wait(Entry entry, Stream& stream, CUstream named, bool begins_group) noexcept {
  const NoCancel whole;
  if (client_.takes_turns()) [[unlikely]]
    write_arrival(stream, named);
  const bool put = memory_.wait_for_open(named);
  const bool still_device = client_.policy().waits_on_device();
  if (put) {
    client_.counter(entry, shm::Count::kWaited).fetch_add(1, std::memory_order_relaxed);
  } else if (still_device) {
    client_.counter(entry, shm::Count::kGated).fetch_sub(1);
    client_.counter(entry, shm::Count::kBypassRefusedWait).fetch_add(1);
  }
  if (put && !begins_group && !stream.owes_wait) return;
  const std::lock_guard lock(stream.lock);
  stream.owes_wait = !put;
  if (put && begins_group) stream.launches = 0;
}

/// Takes no lock: launching threads add streams, and the polling thread takes them all.
void Pacer::add_sampled(Stream& stream) noexcept {
  if (stream.sampled.exchange(true)) return;
  stream.next_sampled = sampled_.load();
  while (!sampled_.compare_exchange_weak(stream.next_sampled, &stream)) continue;
}

/// A thread that the driver blocks leaves the rest of the round to the one that relieves it.
Stream* Pacer::next_sampled() noexcept {
  const std::lock_guard lock(collecting_);
  Stream* const stream = collected_;
  if (stream != nullptr) collected_ = stream->next_sampled;
  return stream;
}

bool Pacer::collect_samples() {
  const std::optional<std::uint64_t> now = client_.others_quiet();
  Sampler::Quiet quiet{std::nullopt, now, client_.peers_quiet()};
  {
    const std::lock_guard lock(collecting_);
    quiet.before = quiet_before_;
    if (collected_ == nullptr) collected_ = sampled_.exchange(nullptr);
  }
  const auto measured = [this](LaunchDuration& kind) { gpu_time_.pay(kind); };
  bool any = false;
  while (Stream* const next = next_sampled()) {
    Stream& stream = *next;
    any = any || stream.sampler.under_way();
    const Streams::Names names = streams_.names_of(stream);
    if (!DriverQuery::is_under_way(names.context, names.key.handle)) {
      const DriverQuery query(names.context, names.key.handle);
      // The stream may have ended before the query, and its record may be another's.
      const bool known = query && streams_.find(names.key) == &stream;
      if (known) stream.sampler.collect(quiet, *stream.pools, measured);
    }
    stream.sampled.store(false);
    // Looked at after that, so a sample that came meanwhile is seen here or adds the stream.
    if (stream.sampler.under_way() && stream.lives.load()) add_sampled(stream);
  }
  const std::lock_guard lock(collecting_);
  quiet_before_ = now;
  return any;
}

/// Group g may start when group g-2 has ended; both use the same event.
void Pacer::begin_group(Stream& stream, const Place& place) noexcept {
  Stream::GroupEnd& end = stream.group_ends[place.parity()];
  {
    const std::lock_guard lock(stream.events);
    if (!end.recorded && !end.recording) return;
  }
  CUevent event = nullptr;
  const Waited waited = wait(stream, shm::TraceHold::kEventGroup, place.policy,
                             [&] { return ask_group_end(stream, place.parity(), event); });
  if (waited != Waited::kFailed) return;
  const std::lock_guard lock(stream.events);
  if (end.event == event) end.event = nullptr;  // its context has ended, and the event with it
}

/// One wait takes the event, once it is recorded. Then it is `event`.
CUresult Pacer::ask_group_end(Stream& stream, std::size_t parity, CUevent& event) noexcept {
  if (event == nullptr) {
    const std::lock_guard lock(stream.events);
    Stream::GroupEnd& end = stream.group_ends[parity];
    if (end.recording) return CUDA_ERROR_NOT_READY;
    if (!std::exchange(end.recorded, false)) return CUDA_SUCCESS;
    event = end.event;
  }
  return driver().cuEventQuery(event);
}

/// Without an event, the group ends at once, like one of a sync point.
void Pacer::end_group(Stream& stream, const Place& place, CUstream named) noexcept {
  const NoCancel whole;
  Stream::GroupEnd& end = stream.group_ends[place.parity()];
  CUevent event = nullptr;
  std::uint32_t ended = 0;
  {
    const std::lock_guard lock(stream.events);
    if (std::exchange(end.recording, true)) return;
    event = std::exchange(end.event, nullptr);
    ended = stream.ended;
  }
  if (event == nullptr) event = stream.pools->plain.take();
  if (event == nullptr) wait_for_all(stream, shm::TraceHold::kEventGroup, place.policy, named);
  const bool recorded = event != nullptr && driver().cuEventRecord(event, named) == CUDA_SUCCESS;
  const std::lock_guard lock(stream.events);
  if (stream.ended == ended) end = {event, recorded, false};
}

void Pacer::after(const Place& place, Stream& stream, CUstream named, CUresult launched) noexcept {
  if (place.sampled != nullptr) {
    const NoCancel whole;
    const bool alone = place.launches_before == 0 || place.launches_before == client_.launches();
    stream.sampler.end(*place.sampled, named, launched == CUDA_SUCCESS && alone);
    add_sampled(stream);
    poller_.wake();  // after end(), or the poller would find no sample and sleep again
  }
  if (place.marks_end && launched == CUDA_SUCCESS) mark_end(stream, named);
  if (place.number == 0 || !place.ends_group()) return;
  switch (place.policy.between()) {
    case shm::Between::kEventGroup:
      return end_group(stream, place, named);
    case shm::Between::kSyncPoint:
      return wait_for_all(stream, shm::TraceHold::kSyncPoint, place.policy, named);
    case shm::Between::kDeviceWait:  // in front of the launch
    case shm::Between::kNothing:
      break;
  }
}

void Pacer::end(Stream& stream, bool gone) noexcept {
  const auto to = [&](EventPool& pool) {
    return gone ? EventReturn{} : EventReturn{&pool, {stream.context, stream.context_number}};
  };
  const EventReturn events = to(stream.pools->plain);
  stream.sampler.end_stream(to(stream.pools->timed), events);
  stream.run_ahead.end_stream(events);
  no_longer_stuck(stream);
  memory_.arrivals().give_back(stream.arrivals.exchange(-1));
  {
    const std::lock_guard lock(stream.lock);
    empty_account(stream);
  }
  std::array<Stream::GroupEnd, 2> ends;
  {
    const std::lock_guard lock(stream.events);
    ends = std::exchange(stream.group_ends, {});
    ++stream.ended;
  }
  for (const Stream::GroupEnd& end : ends) events.give_back(end.event);
}

}  // namespace sluice::intercept
