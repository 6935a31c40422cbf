#include "intercept/pacing/pacer.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "intercept/client/process.hpp"
#include "intercept/driver/capture_mode.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/trace/trace.hpp"

namespace sluice::intercept {

using shm::PolicyKind;

/// Ends when another policy is in force: under that one others may fill the stream, so that it is
/// never idle. While the gate is closed it does not count as long: waits of policy device, in the
/// stream from before, hold the work then, as hold() would hold the launch.
template <class Query>
Waited Pacer::wait(shm::TraceHold why, shm::Policy policy, Query query) noexcept {
  Trace* const traced = g_process.trace.load();
  const std::uint64_t begin = traced == nullptr ? 0 : base::monotonic_ns();
  const Waited waited =
      wait_for_driver([&] { return client_.is_under(policy) ? query() : CUDA_SUCCESS; },
                      [&] { return client_.obeys() && client_.gate_closed(); });
  if (traced != nullptr) traced->hold(why, begin, 0, 0);
  return waited;
}

Pacer::Turn Pacer::before(Entry entry, Stream& stream, CUstream named, const Work& work,
                          bool held) noexcept {
  const shm::Policy policy = client_.policy();
  if (policy.spacing.count == 0) return {};
  Turn turn{0, false, policy};
  Due due;
  bool begins_group = false;
  {
    const std::lock_guard lock(stream.mutex);
    if (stream.policy != policy) {
      stream.policy = policy;
      stream.launches = 0;  // so that a wait, or a look at the last group, comes first
    }
    turn.number = ++stream.launches;
    begins_group = (turn.number - 1) % policy.spacing.count == 0;
    if (policy.kind == PolicyKind::kEvent && begins_group) make_group_ends(stream);
    if (policy.kind == PolicyKind::kDevice) due = spend(stream, work, held, policy);
  }
  if (policy.kind == PolicyKind::kEvent && begins_group) {
    begin_group(stream, (turn.number - 1) / policy.spacing.count % 2, policy);
  }
  if (policy.kind != PolicyKind::kDevice) return turn;
  const bool graph = work.graph != nullptr;
  const bool in_time = policy.spacing.is_time();
  // First: behind it the gate is read, which closes before there is slack again.
  if (in_time && client_.outranked()) wait_for_slack(due.duration, graph, named, policy);
  if (due.wait) put_wait(entry, stream, named, graph && !in_time);
  if (graph && !in_time) turn.number = 0;
  if (in_time) turn.sampled = begin_sample(stream, due.duration, named);
  return turn;
}

/// Puts the launch to the account. Whether a wait is due in front of it.
Pacer::Due Pacer::spend(Stream& stream, const Work& work, bool held,
                        const shm::Policy& policy) noexcept {
  const bool graph = work.graph != nullptr;
  if (!policy.spacing.is_time()) {
    const bool due = (stream.launches - 1) % policy.spacing.count == 0;
    // A graph is many kernels: it never shares a spacing.
    return {due || graph || held || stream.owes_wait, nullptr};
  }
  LaunchDuration* const duration = durations_.find_in_turn(work, stream.previous);
  if (!client_.outranked()) return {false, duration};
  tell_status(duration, graph);
  const std::uint64_t ns = std::min<std::uint64_t>(
      duration == nullptr ? LaunchDuration::kUnbounded : duration->ns(), policy.spacing.ns() + 1);
  // A graph always gets a wait: its own may be far inside.
  const bool always = graph || held || stream.owes_wait;
  return {is_due(stream, ns, always, policy.spacing.ns()), duration};
}

/// One account for all streams: what may still run when the gate closes is the sum of what each has
/// been given since its last wait.
bool Pacer::is_due(Stream& stream, std::uint64_t ns, bool always,
                   std::uint64_t spacing_ns) noexcept {
  const std::uint64_t run_ns = run_ns_.load(std::memory_order_relaxed);
  const bool due = always || run_ns + ns > spacing_ns;
  stream.idle = false;
  if (!due) {
    run_ns_.fetch_add(ns, std::memory_order_relaxed);
    stream.run_ns += ns;
    return false;
  }
  const std::uint64_t own_ns = std::exchange(stream.run_ns, ns);
  if (run_ns_.fetch_add(ns - own_ns) != own_ns) write_off_idle(stream);
  return true;
}

/// What another stream was given last has run where nothing came after it for so long, or stands
/// behind a wait of its own. Else it would count for ever, and each launch elsewhere get a wait.
void Pacer::write_off_idle(const Stream& own) noexcept {
  constexpr std::uint64_t kLongNs = 100'000'000;
  const std::uint64_t now = base::monotonic_ns();
  std::uint64_t last = written_off_ns_.load();
  if (client_.gate_closed()) return written_off_ns_.store(now);  // it may run when that opens
  if (now - last < kLongNs || !written_off_ns_.compare_exchange_strong(last, now)) return;
  streams_.for_each([&](Stream& other) {
    if (&other == &own || other.pacer != this) return;
    const std::unique_lock lock(other.mutex, std::try_to_lock);
    if (!lock.owns_lock()) return;  // somebody launches into it
    if (std::exchange(other.idle, true)) run_ns_.fetch_sub(std::exchange(other.run_ns, 0));
  });
}

void Pacer::tell_status(const LaunchDuration* duration, bool graph) noexcept {
  shm::Slot& slot = client_.slot();
  const auto raise = [](shm::Word& word, std::uint64_t ns) {
    if (word.load(std::memory_order_relaxed) < ns) word.store(ns, std::memory_order_relaxed);
  };
  if (duration == nullptr || duration->ns() == LaunchDuration::kUnbounded) {
    slot.unknown_launches.fetch_add(1, std::memory_order_relaxed);
  } else if (!duration->preemptible()) {
    raise(slot.longest_launch_ns, duration->ns());
    if (graph) raise(slot.ungated_graph_ns, duration->ns());
  }
}

/// A refused wait is owed: the next launch of the stream asks for it again. The launch behind it,
/// which was counted as gated, is not.
void Pacer::put_wait(Entry entry, Stream& stream, CUstream named, bool begins_group) noexcept {
  const NoCancel whole;
  const bool put = memory_.wait_for_open(named);
  const bool still_device = client_.policy().kind == PolicyKind::kDevice;
  if (put) {
    client_.counter(entry, shm::Count::kWaited).fetch_add(1, std::memory_order_relaxed);
  } else if (still_device) {
    client_.counter(entry, shm::Count::kGated).fetch_sub(1);
    client_.counter(entry, shm::Count::kBypassRefusedWait).fetch_add(1);
  }
  if (put && !begins_group && !stream.owes_wait) return;
  const std::lock_guard lock(stream.mutex);
  stream.owes_wait = !put;
  if (put && begins_group) stream.launches = 0;
}

/// Behind the wait, so that time at a closed gate is in no sample.
bool Pacer::begin_sample(Stream& stream, LaunchDuration* duration, CUstream named) noexcept {
  note_known(duration == nullptr || duration->settled());
  if (duration == nullptr || !stream.sampler.begin(*duration, named)) return false;
  stream.sampler.begun_while(client_.others_quiet());
  return true;
}

/// Durations are learned as long as something new comes, also while nobody outranks us: the first
/// critical job to come shall find them known.
void Pacer::note_known(bool known) noexcept {
  constexpr std::uint32_t kEnough = 4096;
  if (!client_.learning()) return;
  if (!known) {
    known_in_a_row_.store(0, std::memory_order_relaxed);
  } else if (known_in_a_row_.fetch_add(1, std::memory_order_relaxed) == kEnough) {
    client_.set_learning(false);
  }
}

bool Pacer::collect_samples() {
  struct Asked {
    Stream* stream;
    CUcontext context;
    CUstream handle;
  };
  std::vector<Asked> asked;
  streams_.for_each([&](Stream& stream) {
    if (stream.pacer == this && stream.sampler.under_way()) {
      asked.push_back({&stream, stream.context, stream.key.handle});
    }
  });
  const std::optional<std::uint64_t> now = client_.others_quiet();
  bool under_way = false;
  for (const Asked& each : asked) {
    const DriverQuery query(each.context, each.handle);
    under_way = !query || each.stream->sampler.collect(quiet_before_, now) || under_way;
  }
  quiet_before_ = now;
  return under_way;
}

/// Group g may start when group g-2 is done; both use the same event.
void Pacer::begin_group(Stream& stream, std::size_t parity, shm::Policy policy) noexcept {
  CUevent end = nullptr;
  bool recorded = false;
  {
    const std::lock_guard lock(stream.mutex);
    end = stream.group_end[parity];
    recorded = std::exchange(stream.recorded[parity], false);
  }
  if (end == nullptr || !recorded) return;
  const Waited waited =
      wait(shm::TraceHold::kEventGroup, policy, [&] { return driver().cuEventQuery(end); });
  if (waited == Waited::kTooLong) client_.give_up_waiting("an event group");
  if (waited != Waited::kFailed) return;
  const std::lock_guard lock(stream.mutex);
  stream.group_end[parity] = nullptr;  // its context is gone, and the event with it
}

/// Under the lock, in the context of the launch, once per stream: a thread that ends the first
/// group must find its event.
void Pacer::make_group_ends(Stream& stream) noexcept {
  const RelaxedCapture relaxed;
  const NoCancel whole;
  for (CUevent& end : stream.group_end) {
    if (end == nullptr && driver().cuEventCreate(&end, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
      end = nullptr;
    }
  }
}

void Pacer::after(const Turn& turn, Stream& stream, CUstream named, CUresult launched) noexcept {
  if (turn.sampled) {
    const NoCancel whole;
    stream.sampler.end(named, launched == CUDA_SUCCESS);
    poller_.wake();  // not before: it would look, find nothing, and sleep again
  }
  const shm::Policy policy = turn.policy;
  if (policy.kind == PolicyKind::kDevice || turn.number == 0) return;
  if (turn.number % policy.spacing.count != 0) return;
  if (policy.kind == PolicyKind::kEvent) {
    const NoCancel whole;
    const std::size_t parity = (turn.number - 1) / policy.spacing.count % 2;
    const std::unique_lock lock(stream.mutex);
    const CUevent end = stream.group_end[parity];
    // Under the lock: between the record and the note of it another thread must not begin a group.
    stream.recorded[parity] = end != nullptr && driver().cuEventRecord(end, named) == CUDA_SUCCESS;
  }
  if (policy.kind == PolicyKind::kSync) {
    const Waited waited =
        wait(shm::TraceHold::kSyncPoint, policy, [&] { return driver().cuStreamQuery(named); });
    if (waited == Waited::kTooLong) client_.give_up_waiting("a sync point");
  }
}

/// Where jobs are announced, what would not end before one begins does not begin before it. Short
/// launches are within the time by which the gate closes early.
void Pacer::wait_for_slack(const LaunchDuration* duration, bool graph, CUstream named,
                           const shm::Policy& policy) noexcept {
  if (client_.slot().announced.load(std::memory_order_relaxed) == 0) return;
  if (graph && duration != nullptr && duration->preemptible()) return;
  const std::uint32_t ns =
      duration == nullptr ? LaunchDuration::kUnbounded : duration->longest_ns();
  // What is unknown is taken for longer than most kernels of large models are. If for more, it
  // would hardly ever run, and so stay unknown, beside a program that always has the next job
  // announced.
  constexpr std::uint64_t kUnknownNs = 2'000'000;
  if (ns > policy.spacing.ns()) {
    memory_.wait_for_slack(named, ns == LaunchDuration::kUnbounded ? kUnknownNs : ns);
  }
}

void Pacer::end(Stream& stream, bool gone) noexcept {
  stream.sampler.end_stream(gone);
  const std::lock_guard lock(stream.mutex);
  run_ns_.fetch_sub(std::exchange(stream.run_ns, 0));
  for (CUevent& event : stream.group_end) {
    if (event != nullptr && !gone) driver().cuEventDestroy_v2(event);
    event = nullptr;
  }
}

}  // namespace sluice::intercept
