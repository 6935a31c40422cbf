#include "intercept/slot/gate_memory.hpp"

#include "intercept/driver/driver_query.hpp"
#include "intercept/driver/log.hpp"
#include "intercept/driver/threads.hpp"

namespace sluice::intercept {

bool GateMemory::wait_for_open(CUstream stream) noexcept {
  const CUresult result = put(stream, 0, 0, CU_STREAM_WAIT_VALUE_EQ);
  if (result == CUDA_SUCCESS) return true;
  if (result == CUDA_ERROR_NOT_SUPPORTED) {
    fall_back("refuses stream waits");
    return false;
  }
  if (!client_.policy().waits_on_device()) return false;  // the client has just fallen back
  if (!said_.exchange(true)) {
    Line(Level::kWarn) << "the driver refuses a wait on the gate (error "
                       << static_cast<int>(result) << "); launches without one are ungated, and "
                       << "`sluice status` counts them";
  }
  return false;
}

bool GateMemory::wait_for_slack(CUstream stream, std::uint64_t gpu_ns) noexcept {
  return put(stream, kSlackBehindGate, client_.to_real_ns(gpu_ns), CU_STREAM_WAIT_VALUE_GEQ) ==
         CUDA_SUCCESS;
}

bool GateMemory::write_arrival(CUstream stream, int index) noexcept {
  const CUdeviceptr gate = address();
  if (gate == 0) return false;
  const CUdeviceptr word =
      gate + kArrivalsBehindGate + static_cast<std::size_t>(index) * sizeof(shm::TurnLine::Word);
  const std::uint64_t number = arrivals_.next(index);
  const CUresult result =
      driver().cuStreamWriteValue64_v2(stream, word, number, CU_STREAM_WRITE_VALUE_DEFAULT);
  if (result != CUDA_SUCCESS) arrivals_.take_back(index);
  return result == CUDA_SUCCESS;
}

/// Tries once more with a new registration, because the context of the old one may have ended
/// unseen.
CUresult GateMemory::put(CUstream stream, std::size_t behind_gate, std::uint64_t value,
                         unsigned flags) noexcept {
  const CUdeviceptr gate = address();
  if (gate == 0) return CUDA_ERROR_INVALID_CONTEXT;
  const CUresult result = driver().cuStreamWaitValue64_v2(stream, gate + behind_gate, value, flags);
  if (result != CUDA_ERROR_INVALID_VALUE) return result;
  gate_.store(0);
  const CUdeviceptr again = address();
  if (again == 0) return result;
  return driver().cuStreamWaitValue64_v2(stream, again + behind_gate, value, flags);
}

std::optional<GateMemory::Addresses> GateMemory::for_graphs() noexcept {
  const CUdeviceptr gate = address();
  const CUcontext current = current_context();
  if (gate == 0 || current != context_.load()) return std::nullopt;
  return Addresses{gate, gate + kSlackBehindGate};
}

CUdeviceptr GateMemory::address() noexcept {
  const CUdeviceptr known = gate_.load(std::memory_order_acquire);
  return known != 0 ? known : register_alone();
}

/// The driver's call may block, so nobody waits for another thread's without an end.
CUdeviceptr GateMemory::register_alone() noexcept {
  const NoCancel whole;
  bool alone = false;
  nap_while(
      [&] {
        alone = !registering_.exchange(true);
        return !alone && gate_.load() == 0;
      },
      kLongestDriverWaitNs);
  if (!alone) return gate_.load();
  const CUdeviceptr known = gate_.load();
  const CUdeviceptr gate = known != 0 ? known : register_page();
  registering_.store(false);
  return gate;
}

/// Registers in the device's primary context if it is active, because other contexts may end
/// earlier.
CUdeviceptr GateMemory::register_page() noexcept {
  int can_wait = 0;
  driver().cuDeviceGetAttribute(&can_wait, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                                client_.device());
  if (can_wait == 0) {
    fall_back("has no 64-bit stream waits");
    return 0;
  }
  const RelaxedCapture relaxed;
  CUcontext context = primary_context(client_.device());
  if (context != nullptr && !primary_is_active(client_.device())) context = nullptr;
  if (context == nullptr) context = current_context();
  if (driver().cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return 0;
  const std::uint32_t ended = contexts_ended_.load();
  const ContextId id = identify(context);
  context_.store(id.handle);
  context_number_.store(id.number);
  const unsigned flags = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                         (client_.seat().reader() ? CU_MEMHOSTREGISTER_READ_ONLY : 0U);
  const CUresult registered = driver().cuMemHostRegister_v2(view_, sizeof(shm::Board), flags);
  auto& board = *static_cast<shm::Board*>(view_);
  CUdeviceptr gate = 0;
  const bool known =
      (registered == CUDA_SUCCESS || registered == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED) &&
      driver().cuMemHostGetDevicePointer_v2(
          &gate, &board.slots[static_cast<std::size_t>(client_.seat().slot)].gate, 0) ==
          CUDA_SUCCESS;
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent_v2(&popped);
  if (!known) {
    fall_back("cannot map the board");
    return 0;
  }
  gate_.store(gate);
  if (contexts_ended_.load() == ended) return gate;
  gate_.store(0);
  return 0;
}

void GateMemory::context_ended(const ContextId& context) noexcept {
  if (!context.ends({context_.load(), context_number_.load()})) return;
  contexts_ended_.fetch_add(1);
  gate_.store(0);
}

void GateMemory::fall_back(const char* why) noexcept {
  client_.fall_back();
  Line(Level::kWarn) << "policy device: the GPU " << why << "; using event:2";
}

}  // namespace sluice::intercept
