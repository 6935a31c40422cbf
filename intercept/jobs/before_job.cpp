#include "intercept/jobs/before_job.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "intercept/driver/contexts.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/driver/process.hpp"
#include "intercept/driver/threads.hpp"
#include "intercept/slot/slice_rule.hpp"
#include "shm/gates.hpp"
#include "shm/mps_word.hpp"
#include "shm/outside_word.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {
namespace {

/// The time that a launch needs to reach the GPU.
constexpr std::uint64_t kLaunchNs = 50'000;
/// A context switch where clients take turns (measured on one H200, driver 580: 0.11 to 0.13 ms).
constexpr std::uint64_t kSwitchNs = 150'000;
/// The lead for clients whose policy sets no bound in GPU time.
constexpr std::uint64_t kUnboundedNs = 1'000'000;

bool is_below(const shm::Slot& self, const shm::Slot& other) noexcept {
  const auto mine = shm::SlotInfo::unpack(self.info.load());
  const auto theirs = shm::SlotInfo::unpack(other.info.load());
  return theirs.state == shm::SlotState::kLive && theirs.device == mine.device &&
         theirs.priority < mine.priority;
}

template <class Visit>
void for_each_below(const ClientSlot& client, Visit visit) noexcept {
  if (client.seat().reader()) return;  // nobody is below it
  shm::Board& board = *client.seat().writable;
  shm::for_each_other(board.used.load(), client.seat().slot, [&](int index) {
    shm::Slot& other = board.slots[static_cast<std::size_t>(index)];
    if (is_below(client.shared(), other)) visit(other);
  });
}

}  // namespace

std::uint64_t switch_ns(const ClientSlot& client) noexcept {
  return client.under_mps() ? kLaunchNs : kLaunchNs + kSwitchNs;
}

std::uint64_t lead_of(const ClientSlot& client) noexcept {
  std::uint64_t lead = 0;
  for_each_below(client, [&lead](const shm::Slot& below) {
    const auto policy = shm::Policy::unpack(below.policy.load());
    if (!policy.heeds_gate()) return;  // a closed gate does not hold this client
    const std::uint64_t asked = policy.spacing.is_time() ? policy.spacing.ns() : kUnboundedNs;
    // A reader must not be able to hold the others early by asking for a long spacing.
    lead = std::max(lead, below.reader.load() != 0 ? std::min(asked, kUnboundedNs) : asked);
  });
  return client.to_real_ns(lead + switch_ns(client));
}

std::uint64_t lead_if_wanted(const ClientSlot& client) noexcept {
  bool wanted = false;
  for_each_below(client, [&wanted](const shm::Slot& below) {
    // A short slice bounds what the job waits for, and closed gates would cost GPU time.
    const std::uint32_t slice_us = below.slice_us.load();
    const bool bounded =
        slice_us != 0 && slice_us <= 2 * SliceRule::kShortUs && below.reader.load() == 0;
    const bool by_gate = shm::Policy::unpack(below.policy.load()).waits_on_device();
    wanted = wanted || (by_gate && !bounded);
  });
  return wanted ? lead_of(client) : 0;
}

bool has_lower_clients(const ClientSlot& client) noexcept {
  bool has = false;
  for_each_below(client, [&has](const shm::Slot&) { has = true; });
  return has;
}

LowerClients lower_clients(const ClientSlot& client, std::uint64_t now) noexcept {
  LowerClients lower;
  std::uint64_t sum = 0;  // in any order
  bool any = false;
  bool wide = !client.under_mps();
  for_each_below(client, [&](const shm::Slot& below) {
    if (!shm::Policy::unpack(below.policy.load()).waits_on_device()) return;
    any = true;
    lower.wants = lower.wants || is_busy(below, now) || shm::has_job(below);
    // What was learned next to others holds next to a context that never uses the GPU, too.
    if (below.busy_ns.load(std::memory_order_relaxed) == 0) return;
    // FNV-1a over the name, so that a program that comes again is known.
    constexpr std::uint64_t kPrime = 0x100000001b3;
    std::uint64_t name = (below.uid.load() + 1) * kPrime;
    for (const char letter : below.name) {
      if (letter == '\0') break;
      name = (name ^ static_cast<unsigned char>(letter)) * kPrime;
    }
    const auto mps = shm::MpsWord::unpack(below.mps.load(std::memory_order_relaxed));
    if (client.under_mps() && !mps.is_wide()) name = (name ^ mps.percent) * kPrime;
    wide = wide || mps.is_wide();
    sum += name;
    lower.busy = lower.busy || is_busy(below, now);
    lower.longest_ns =
        std::max({lower.longest_ns, below.longest_launch_ns.load(), below.ungated_graph_ns.load()});
  });
  if (any) lower.id = sum | 1;
  lower.narrow = sum != 0 && !wide;
  return lower;
}

std::uint32_t sharers(const ClientSlot& client, std::uint64_t now) noexcept {
  if (client.under_mps()) return 0;
  const shm::Board& board = client.seat().board;
  const auto own = shm::SlotInfo::unpack(client.shared().info.load());
  std::uint32_t count = 0;
  if (own.device < shm::kMaxDevices) {
    count = shm::OutsideWord::unpack(board.devices[own.device].outside.load()).busy;
  }
  shm::for_each_other(board.used.load(), client.seat().slot, [&](int index) {
    const shm::Slot& other = board.slots[static_cast<std::size_t>(index)];
    const auto info = shm::SlotInfo::unpack(other.info.load());
    const bool shares = info.state == shm::SlotState::kLive && info.device == own.device &&
                        info.priority >= own.priority;
    if (shares && is_busy(other, now)) ++count;
  });
  return count;
}

void tell_slack(const ClientSlot& client, std::uint64_t start_ns, std::uint64_t until_ns) noexcept {
  const std::uint64_t now = base::monotonic_ns();
  const std::uint64_t end_ns = start_ns - client.to_real_ns(switch_ns(client));
  for_each_below(client, [=](shm::Slot& below) {
    if (shm::is_draining(below.memory.draining.load())) {
      below.slack_ns.store(shm::kUnlimitedSlack);
      return;
    }
    // Another process may have a nearer job. When that slack is over, ours is written a step later.
    const std::uint64_t told_until = below.slack_until_ns.load();
    if (below.slack_ns.load() != shm::kUnlimitedSlack && now < told_until && told_until < until_ns)
      return;
    below.slack_until_ns.store(until_ns);
    below.slack_ns.store(end_ns > now ? end_ns - now : 0);
    below.announced.store(1);
  });
}

void tell_no_job(const ClientSlot& client) noexcept {
  for_each_below(client, [](shm::Slot& below) {
    below.slack_until_ns.store(0);
    below.slack_ns.store(shm::kUnlimitedSlack);
    below.announced.store(1);
  });
}

namespace {

constexpr const char* kNothing = R"(.version 6.0
.target sm_50
.address_size 64
.visible .entry sluice_early_switch() { ret; }
)";

/// Null if we keep none for the device.
SwitchKernel* kernel_on(CUdevice device) noexcept {
  const auto index = static_cast<std::size_t>(device);
  return index < kMostDevices ? &g_process.switch_kernels[index] : nullptr;
}

bool has_all_calls() noexcept {
  const Driver& calls = driver();
  return calls.cuModuleLoadData != nullptr && calls.cuModuleGetFunction != nullptr &&
         calls.cuStreamCreate != nullptr && calls.cuCtxPushCurrent_v2 != nullptr &&
         calls.cuCtxPopCurrent_v2 != nullptr && calls.cuDeviceGetAttribute != nullptr &&
         calls.cuDevicePrimaryCtxGetState != nullptr;
}

void load(SwitchKernel& kernel, CUcontext context) noexcept {
  const Driver& calls = driver();
  const RelaxedCapture relaxed;
  if (calls.cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return;
  CUmodule module = nullptr;
  CUfunction nothing = nullptr;
  CUstream stream = nullptr;
  // May fail, for example with CUDA_DISABLE_PTX_JIT.
  if (calls.cuModuleLoadData(&module, kNothing) == CUDA_SUCCESS &&
      calls.cuModuleGetFunction(&nothing, module, "sluice_early_switch") == CUDA_SUCCESS &&
      calls.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS) {
    const ContextId id = identify(context);
    kernel.context.store(id.handle);
    kernel.context_number.store(id.number);
    kernel.stream.store(stream);
    kernel.function.store(nothing);
  }
  CUcontext popped = nullptr;
  calls.cuCtxPopCurrent_v2(&popped);
}

}  // namespace

RetainPrimary::RetainPrimary(CUdevice device) noexcept : device_(device) {
  SwitchKernel* const kernel = kernel_on(device);
  if (kernel == nullptr || in_forked_child() || !has_all_calls() || primary_is_active(device))
    return;
  begins_ = !kernel->loading.exchange(true);
}

void RetainPrimary::returned(CUcontext context, bool wanted) noexcept {
  SwitchKernel* const kernel = kernel_on(device_);
  if (kernel == nullptr || in_forked_child()) return;
  if (begins_) {
    if (context != nullptr && wanted && !is_under_mps(device_)) load(*kernel, context);
    kernel->loading.store(false);
    return;
  }
  constexpr std::uint64_t kLongestNs = 2'000'000'000;
  if (context != nullptr) nap_while([kernel] { return kernel->loading.load(); }, kLongestNs);
}

/// A client that is held must not switch: its kernel would interrupt the job that holds it, and
/// with a full queue behind its gate the driver would block. Priority is read here because it may
/// have changed.
bool EarlySwitch::may_switch() const noexcept {
  return !client_.gate_closed() && client_.priority() != 0;
}

void EarlySwitch::operator()() noexcept {
  SwitchKernel* const kernel = kernel_on(client_.device());
  if (kernel == nullptr || kernel->function.load() == nullptr || !may_switch()) return;
  const CUcontext context = primary_context(client_.device());
  // The query is of our own stream, so only a thread that ends the context waits for it.
  const DriverQuery query(context, kernel->stream.load());
  const CUfunction nothing = kernel->function.load();
  // The context may have ended, and another one may have begun.
  if (!query || nothing == nullptr || primary_context(client_.device()) != context ||
      !primary_is_active(client_.device())) {
    return;
  }
  const RelaxedCapture relaxed;
  if (driver().cuCtxPushCurrent_v2(context) != CUDA_SUCCESS) return;
  // At most one kernel is under way: if the GPU reaches none for long, more would fill their queue,
  // and then the driver blocks.
  const CUstream stream = kernel->stream.load();
  if (driver().cuStreamQuery(stream) != CUDA_ERROR_NOT_READY) {
    driver().cuLaunchKernel(nothing, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
  }
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent_v2(&popped);
}

void EarlySwitch::forget_context(const ContextId& context) noexcept {
  for (SwitchKernel& kernel : g_process.switch_kernels) {
    if (context.ends({kernel.context.load(), kernel.context_number.load()})) {
      kernel.function.store(nullptr);
    }
  }
}

}  // namespace sluice::intercept
