#include "intercept/pacer.hpp"

#include "intercept/capture.hpp"
#include "intercept/client.hpp"
#include "intercept/driver_wait.hpp"
#include "intercept/log.hpp"
#include "intercept/primary_context.hpp"
#include "intercept/trace.hpp"

namespace sluice::intercept {

using shm::PolicyKind;

namespace {

template <class Query>
Waited traced_wait(shm::TraceHold why, Query query) noexcept {
  Trace* const traced = trace();
  const std::uint64_t begin = traced == nullptr ? 0 : shm::monotonic_ns();
  const Waited waited = wait_for_driver(query);
  if (traced != nullptr) traced->hold(why, begin, 0, 0);
  return waited;
}

}  // namespace

std::shared_ptr<Pacer::Stream> Pacer::find(CUstream stream) {
  unsigned long long id = 0;
  if (driver().cuStreamGetId(stream, &id) != CUDA_SUCCESS) return nullptr;
  const std::lock_guard lock(mutex_);
  std::shared_ptr<Stream>& state = streams_[id];
  if (state == nullptr) {
    state = std::make_shared<Stream>();
    driver().cuCtxGetCurrent(&state->context);
  }
  return state;
}

Pacer::Turn Pacer::before(Entry entry, CUstream stream) noexcept {
  const shm::Policy policy = client_.policy();
  const bool graph = entry == Entry::cuGraphLaunch || entry == Entry::cuGraphLaunch_ptsz;
  std::shared_ptr<Stream> state = policy.n == 0 ? nullptr : find(stream);
  if (state == nullptr) return {};
  const std::lock_guard lock(state->mutex);
  const bool due = state->launches % policy.n == 0;
  const std::uint64_t number = ++state->launches;
  if (policy.kind == PolicyKind::kEvent && due) begin_group(*state, (number - 1) / policy.n);
  // A graph is many kernels: it never shares the spacing of the launches before it.
  if (policy.kind == PolicyKind::kDevice && (due || graph) && put_wait(stream)) {
    client_.counter(entry, shm::Count::kWaited).fetch_add(1);
    if (graph) state->launches = 0;
  }
  return {std::move(state), number};
}

/// Group g may start when group g-2 is done; both use the same event.
void Pacer::begin_group(Stream& state, std::uint64_t group) noexcept {
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
      traced_wait(shm::TraceHold::kEventGroup, [&] { return driver().cuEventQuery(end); });
  if (waited == Waited::kTooLong) client_.give_up_waiting("an event group");
  if (waited == Waited::kFailed) end = nullptr;  // its context is gone, and the event with it
}

void Pacer::after(const Turn& turn, CUstream stream) noexcept {
  const shm::Policy policy = client_.policy();
  if (policy.n == 0 || turn.number % policy.n != 0) return;
  Stream& state = *turn.state;
  const std::lock_guard lock(state.mutex);
  if (policy.kind == PolicyKind::kEvent) {
    const std::size_t parity = (turn.number - 1) / policy.n % 2;
    const CUevent end = state.group_end[parity];
    state.recorded[parity] = end != nullptr && driver().cuEventRecord(end, stream) == CUDA_SUCCESS;
  }
  if (policy.kind == PolicyKind::kSync) {
    const Waited waited =
        traced_wait(shm::TraceHold::kSyncPoint, [&] { return driver().cuStreamQuery(stream); });
    if (waited == Waited::kTooLong) client_.give_up_waiting("a sync point");
  }
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

bool Pacer::put_node(CUstream stream) noexcept {
  if (gate_address_.load() == 0 && !register_board()) return false;
  CUcontext current = nullptr;
  driver().cuCtxGetCurrent(&current);
  if (current == registered_in_.load()) return put_wait(stream);
  report_bare_graph();
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
  client_.set_policy({PolicyKind::kEvent, 2});
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
  const std::lock_guard lock(mutex_);
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  for (const CUevent event : found->second->group_end) {
    if (event != nullptr) driver().cuEventDestroy_v2(event);
  }
  streams_.erase(found);
}

void Pacer::forget_context(CUcontext context) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(streams_, [context](const auto& stream) {
    return context == nullptr || stream.second->context == context;
  });
  if (context != nullptr && registered_in_.load() != context) return;
  registered_in_.store(nullptr);
  gate_address_.store(0);
}

}  // namespace sluice::intercept
