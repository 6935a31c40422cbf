#include "intercept/pacing/pacer.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "intercept/client/client.hpp"
#include "intercept/client/log.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/driver/driver_wait.hpp"
#include "intercept/driver/primary_context.hpp"
#include "intercept/jobs/poller.hpp"
#include "intercept/pacing/capture.hpp"
#include "intercept/trace/trace.hpp"

namespace sluice::intercept {

using shm::PolicyKind;

/// Ends when another policy is in force: under that one others may fill the stream, so that it is
/// never idle. While the gate is closed it does not count as long: waits of policy device, in the
/// stream from before, hold the work then, as hold() would hold the launch.
template <class Query>
Waited Pacer::wait(shm::TraceHold why, shm::Policy policy, Query query) noexcept {
  Trace* const traced = trace();
  const std::uint64_t begin = traced == nullptr ? 0 : base::monotonic_ns();
  const Waited waited =
      wait_for_driver([&] { return client_.is_under(policy) ? query() : CUDA_SUCCESS; },
                      [&] { return client_.obeys() && client_.gate_closed(); });
  if (traced != nullptr) traced->hold(why, begin, 0, 0);
  return waited;
}

std::shared_ptr<Pacer::Stream> Pacer::find(CUstream stream) {
  unsigned long long id = 0;
  if (driver().cuStreamGetId(stream, &id) != CUDA_SUCCESS) return nullptr;
  std::vector<Streams::value_type> ended;
  std::shared_ptr<Stream> found;
  {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Stream>& state = streams_[id];
    if (state == nullptr) {
      state = std::make_shared<Stream>();
      state->handle = stream;
      if (stream == CU_STREAM_PER_THREAD) state->thread = gettid();
      driver().cuCtxGetCurrent(&state->context);
    }
    found = state;
    if (streams_.size() >= many_streams_) ended = of_ended_threads();
  }
  for (const Streams::value_type& each : ended) end_of_thread(each);
  return found;
}

/// Default streams of threads end with their threads, and no call tells.
std::vector<Pacer::Streams::value_type> Pacer::of_ended_threads() {
  std::vector<Streams::value_type> ended;
  for (const Streams::value_type& kept : streams_) {
    const pid_t thread = kept.second->thread;
    if (thread != 0 && tgkill(getpid(), thread, 0) != 0 && errno == ESRCH) ended.push_back(kept);
  }
  many_streams_ = std::max(many_streams_, 2 * (streams_.size() - ended.size()));
  return ended;
}

/// Its context may be destroyed by another thread: not before the answer, and what it took along is
/// kept no more.
void Pacer::end_of_thread(const Streams::value_type& kept) noexcept {
  const DriverQuery question(kept.second->context, kept.second->handle);
  if (!question) return;  // at the next look
  {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(kept.first);
    if (found == streams_.end() || found->second != kept.second) return;
    streams_.erase(found);
  }
  end(*kept.second);
}

void Pacer::end(Stream& state) noexcept {
  run_ns_.fetch_sub(state.run_ns.exchange(0));
  state.sampler.end_stream(false);
  for (const CUevent event : state.group_end) {
    if (event != nullptr) driver().cuEventDestroy_v2(event);
  }
}

Pacer::Turn Pacer::before(Entry entry, CUstream stream, const Work& work, bool held) noexcept {
  const shm::Policy policy = client_.policy();
  std::shared_ptr<Stream> state = policy.spacing.count == 0 ? nullptr : find(stream);
  if (state == nullptr) return {};
  const std::lock_guard lock(state->mutex);
  if (state->policy != policy) {
    state->policy = policy;
    state->launches = 0;  // so that a wait, or a look at the last group, comes first
  }
  Turn turn{state, ++state->launches, false, policy};
  const bool due = (turn.number - 1) % policy.spacing.count == 0;
  if (policy.kind == PolicyKind::kEvent && due) {
    begin_group(*state, (turn.number - 1) / policy.spacing.count, policy);
  }
  if (policy.kind != PolicyKind::kDevice) return turn;
  const bool graph = work.graph != nullptr;
  LaunchDuration* const length =
      policy.spacing.is_time() ? durations_.find_in_turn(work, state->previous) : nullptr;
  const bool wanted = policy.spacing.is_time()
                          ? client_.outranked() && spend(*state, length, graph || held, policy)
                          // A graph is many kernels: it never shares a spacing.
                          : due || graph || held;
  // First: behind it the gate is read, which closes before there is room again.
  if (policy.spacing.is_time() && client_.outranked())
    wait_for_slack(length, graph, stream, policy);
  if (wanted && put_wait(stream)) {
    client_.counter(entry, shm::Count::kWaited).fetch_add(1);
    if (graph && !policy.spacing.is_time()) state->launches = turn.number = 0;
  }
  if (policy.spacing.is_time()) turn.sampled = begin_sample(*state, length, stream);
  return turn;
}

/// One account for all streams: what may still run when the gate closes is the sum of what each has
/// been given since its last wait. A graph always gets a wait: its own may be far inside.
bool Pacer::spend(Stream& state, const LaunchDuration* length, bool graph,
                  const shm::Policy& policy) noexcept {
  const std::uint64_t spacing_ns = policy.spacing.ns();
  tell_status(length, graph);
  const std::uint64_t ns = std::min<std::uint64_t>(
      length == nullptr ? LaunchDuration::kUnbounded : length->ns(), spacing_ns + 1);
  const bool due = graph || run_ns_.load(std::memory_order_relaxed) + ns > spacing_ns;
  if (due) {
    const std::uint64_t own_ns = state.run_ns.exchange(0);
    if (run_ns_.fetch_sub(own_ns) != own_ns) write_off_idle();
  }
  run_ns_.fetch_add(ns);
  state.run_ns.fetch_add(ns);
  state.idle.store(false, std::memory_order_relaxed);
  return due;
}

/// What another stream was given last has run where nothing came after it for so long, or stands
/// behind a wait of its own. Else it would count for ever, and each launch elsewhere get a wait.
void Pacer::write_off_idle() noexcept {
  constexpr std::uint64_t kLongNs = 100'000'000;
  const std::uint64_t now = base::monotonic_ns();
  std::uint64_t last = written_off_ns_.load();
  if (client_.gate_closed()) return written_off_ns_.store(now);  // it may run when that opens
  if (now - last < kLongNs || !written_off_ns_.compare_exchange_strong(last, now)) return;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, stream] : streams_) {
    if (stream->idle.exchange(true)) run_ns_.fetch_sub(stream->run_ns.exchange(0));
  }
}

void Pacer::tell_status(const LaunchDuration* length, bool graph) noexcept {
  shm::Slot& slot = client_.slot();
  const auto raise = [](shm::Word& word, std::uint64_t ns) {
    if (word.load(std::memory_order_relaxed) < ns) word.store(ns, std::memory_order_relaxed);
  };
  if (length == nullptr || length->ns() == LaunchDuration::kUnbounded) {
    slot.unknown_launches.fetch_add(1, std::memory_order_relaxed);
  } else if (!length->preemptible()) {
    raise(slot.longest_launch_ns, length->ns());
    if (graph) raise(slot.ungated_graph_ns, length->ns());
  }
}

/// Behind the wait, so that time at a closed gate is in no sample.
bool Pacer::begin_sample(Stream& state, LaunchDuration* length, CUstream stream) noexcept {
  note_known(length == nullptr || length->settled());
  if (length == nullptr || !state.sampler.begin(*length, stream)) return false;
  state.sampler.begun_while(client_.others_quiet());
  return true;
}

/// LaunchDurations are learned as long as something new comes, also while nobody outranks us: the
/// first critical job to come shall find them known.
void Pacer::note_known(bool known) noexcept {
  constexpr std::uint32_t kEnough = 4096;
  if (!known) {
    known_in_a_row_.store(0, std::memory_order_relaxed);
  } else if (known_in_a_row_.fetch_add(1, std::memory_order_relaxed) == kEnough) {
    client_.set_learning(false);
  }
}

bool Pacer::collect_samples() noexcept {
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, stream] : streams_) {
      if (stream->sampler.under_way()) sampled_.push_back(stream);
    }
  }
  const std::optional<std::uint64_t> now = client_.others_quiet();
  bool under_way = false;
  for (const std::shared_ptr<Stream>& stream : sampled_) {
    const DriverQuery question(stream->context, stream->handle);
    under_way = !question || stream->sampler.collect(quiet_before_, now) || under_way;
  }
  sampled_.clear();
  quiet_before_ = now;
  return under_way;
}

/// Group g may start when group g-2 is done; both use the same event.
void Pacer::begin_group(Stream& state, std::uint64_t group, shm::Policy policy) noexcept {
  const std::size_t parity = group % 2;
  CUevent& end = state.group_end[parity];
  if (end == nullptr) {
    // In the context of the launch, once per stream: never on the path of later launches.
    const RelaxedCapture relaxed;
    if (driver().cuEventCreate(&end, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) end = nullptr;
    return;
  }
  if (!state.recorded[parity]) return;
  state.recorded[parity] = false;
  const Waited waited =
      wait(shm::TraceHold::kEventGroup, policy, [&] { return driver().cuEventQuery(end); });
  if (waited == Waited::kTooLong) client_.give_up_waiting("an event group");
  if (waited == Waited::kFailed) end = nullptr;  // its context is gone, and the event with it
}

void Pacer::after(const Turn& turn, CUstream stream, CUresult launched) noexcept {
  const shm::Policy policy = turn.policy;
  Stream& state = *turn.state;
  const std::lock_guard lock(state.mutex);
  if (turn.sampled) {
    state.sampler.end(stream, launched == CUDA_SUCCESS);
    wake_poller();  // not before: it would look, find nothing, and sleep again
  }
  if (policy.spacing.count == 0 || turn.number % policy.spacing.count != 0) return;
  if (policy.kind == PolicyKind::kEvent) {
    const std::size_t parity = (turn.number - 1) / policy.spacing.count % 2;
    const CUevent end = state.group_end[parity];
    state.recorded[parity] = end != nullptr && driver().cuEventRecord(end, stream) == CUDA_SUCCESS;
  }
  if (policy.kind == PolicyKind::kSync) {
    const Waited waited =
        wait(shm::TraceHold::kSyncPoint, policy, [&] { return driver().cuStreamQuery(stream); });
    if (waited == Waited::kTooLong) client_.give_up_waiting("a sync point");
  }
}

/// Where jobs are announced, what would not end before one begins does not begin before it. Short
/// launches are within the time by which the gate closes early.
void Pacer::wait_for_slack(const LaunchDuration* length, bool graph, CUstream stream,
                           const shm::Policy& policy) noexcept {
  if (client_.slot().announced.load(std::memory_order_relaxed) == 0) return;
  if (graph && length != nullptr && length->preemptible()) return;
  const std::uint32_t ns = length == nullptr ? LaunchDuration::kUnbounded : length->longest_ns();
  if (ns > policy.spacing.ns()) put_slack_wait(stream, ns);
}

bool Pacer::put_slack_wait(CUstream stream, std::uint32_t ns) noexcept {
  // What is unknown is taken for longer than most kernels of large models are. If for more, it
  // would hardly ever run, and so stay unknown, beside a program that always has the next job
  // announced.
  constexpr std::uint64_t kUnknownNs = 2'000'000;
  const std::uint64_t room = client_.to_real_ns(ns == LaunchDuration::kUnbounded ? kUnknownNs : ns);
  const CUdeviceptr gate = gate_address_.load(std::memory_order_relaxed);
  if (gate == 0) return false;
  return driver().cuStreamWaitValue64_v2(stream, slack_beside(gate), room,
                                         CU_STREAM_WAIT_VALUE_GEQ) == CUDA_SUCCESS;
}

CUdeviceptr Pacer::slack_beside(CUdeviceptr gate) noexcept {
  return gate - offsetof(shm::Slot, gate) + offsetof(shm::Slot, slack_ns);
}

bool Pacer::waits_at(CUdeviceptr address) const noexcept {
  const CUdeviceptr gate = gate_address_.load();
  return gate != 0 && (address == gate || address == slack_beside(gate));
}

bool Pacer::put_wait(CUstream stream) noexcept {
  CUdeviceptr address = gate_address_.load(std::memory_order_relaxed);
  if (address == 0) {
    if (!register_board()) return false;
    address = gate_address_.load();
  }
  const CUresult result =
      driver().cuStreamWaitValue64_v2(stream, address, 0, CU_STREAM_WAIT_VALUE_EQ);
  if (result == CUDA_ERROR_NOT_SUPPORTED) fall_back("refuses stream waits");
  return result == CUDA_SUCCESS;
}

bool Pacer::put_node(CUstream stream) noexcept { return may_put_node() && put_wait(stream); }

bool Pacer::put_slack_node(CUstream stream, std::uint32_t ns) noexcept {
  return may_put_node() && put_slack_wait(stream, ns);
}

bool Pacer::may_put_node() noexcept {
  if (gate_address_.load() == 0 && !register_board()) return false;
  CUcontext current = nullptr;
  driver().cuCtxGetCurrent(&current);
  if (current == registered_in_.load()) return true;
  report_ungated_graph();
  return false;
}

/// The whole board, once per process: a second registration of a page is refused, which is fine.
/// In the device's primary context where there is one, because others come and go beside it.
bool Pacer::register_board() noexcept {
  int can_wait = 0;
  driver().cuDeviceGetAttribute(&can_wait, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                                client_.device());
  if (can_wait == 0) {
    fall_back("has no 64-bit stream waits");
    return false;
  }
  const RelaxedCapture relaxed;
  CUcontext context = primary_context(client_.device());
  if (context != nullptr && !primary_is_active(client_.device())) context = nullptr;
  if (context == nullptr) driver().cuCtxGetCurrent(&context);
  if (driver().cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return false;
  const bool known = register_here();
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent_v2(&popped);
  if (!known) {
    fall_back("cannot map the board");
    return false;
  }
  registered_in_.store(context);
  return true;
}

bool Pacer::register_here() noexcept {
  shm::Board& board = client_.seat().board;
  const CUresult registered = driver().cuMemHostRegister_v2(
      &board, sizeof(board), CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP);
  CUdeviceptr address = 0;
  const bool known =
      (registered == CUDA_SUCCESS || registered == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) &&
      driver().cuMemHostGetDevicePointer_v2(&address, &client_.slot().gate, 0) == CUDA_SUCCESS;
  if (known) gate_address_.store(address);
  return known;
}

void Pacer::fall_back(const char* why) noexcept {
  client_.fall_back();
  Line(Level::kWarn) << "policy device: the GPU " << why << "; using event:2";
}

void Pacer::forget(CUstream stream) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (streams_.empty()) return;
  }
  // To ask a capturing stream for its id would break the capture; what is kept of one that is
  // destroyed inside a capture does no harm, because its id does not come again.
  if (any_capture_open() && is_capturing(stream)) return;
  unsigned long long id = 0;
  if (driver().cuStreamGetId(stream, &id) != CUDA_SUCCESS) return;
  std::shared_ptr<Stream> state;
  {
    const std::lock_guard lock(mutex_);
    const auto found = streams_.find(id);
    if (found == streams_.end()) return;
    state = std::move(found->second);
    streams_.erase(found);
  }
  end(*state);
}

void Pacer::forget_context(CUcontext context) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [&](const auto& entry) {
    Stream& state = *entry.second;
    if (context != nullptr && state.context != context) return false;
    state.sampler.end_stream(true);
    run_ns_.fetch_sub(state.run_ns.exchange(0));
    return true;
  });
  if (context != nullptr && registered_in_.load() != context) return;
  registered_in_.store(nullptr);
  gate_address_.store(0);
}

}  // namespace sluice::intercept
