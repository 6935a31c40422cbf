#include "intercept/slot/client_slot.hpp"

#include <array>
#include <bit>
#include <cstdlib>
#include <string_view>

#include "intercept/driver/log.hpp"
#include "intercept/driver/process.hpp"
#include "intercept/trace/trace.hpp"
#include "shm/entry_names.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {
namespace {

/// A held thread looks at its gate again this often, so that a wake-up that is lost with a killed
/// process costs little.
constexpr std::uint64_t kRecheckNs = 10'000'000;

/// A watcher that has not run for this long will not enforce max_hold, so a held thread then
/// continues.
constexpr std::uint64_t kWatcherLostNs = 2'000'000'000;

/// Replaces policy device on a device that cannot wait.
constexpr shm::Policy kFallback{shm::PolicyKind::kEvent, shm::Spacing::launches(2)};

constexpr std::string_view kSimulatedGpu = "Sluice simulated GPU (scale ";

/// How many times slower than real time the simulated GPU runs, from its name. 0 for a real GPU.
double simulated_scale(CUdevice device) noexcept {
  std::array<char, 128> name{};
  driver().cuDeviceGetName(name.data(), static_cast<int>(name.size() - 1), device);
  if (!std::string_view(name.data()).starts_with(kSimulatedGpu)) return 0;
  return std::strtod(name.data() + kSimulatedGpu.size(), nullptr);
}

}  // namespace

bool is_under_mps(CUdevice device) noexcept {
  int enabled = 0;
  return driver().cuDeviceGetAttribute(&enabled, CU_DEVICE_ATTRIBUTE_MPS_ENABLED, device) ==
             CUDA_SUCCESS &&
         enabled != 0;
}

ClientSlot::ClientSlot(const Seat& seat, CUdevice device, shm::Policy policy) noexcept
    : seat_(seat),
      slot_(seat.words),
      shared_(seat.shared()),
      orders_(seat.board, seat.writable, seat.words, {seat.slot, seat.generation}),
      device_(device),
      simulated_scale_(simulated_scale(device)),
      under_mps_(is_under_mps(device)),
      policy_(policy.pack()),
      learning_(policy.spacing.is_time()) {}

// The next two functions change what a launch has to do, so threads must drop what they remember.

void ClientSlot::set_obeys(bool obeys) noexcept {
  obeys_.store(obeys);
  g_process.forget_remembered();
}

void ClientSlot::set_learning(bool learning) noexcept {
  learning_.store(learning);
  g_process.forget_remembered();
}

std::uint64_t ClientSlot::launches() const noexcept {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < shm::kEntryNames.size(); ++i) sum += slot_.entries[i].launches();
  return sum;
}

/// By the rule of gates.hpp: a writer reads the inputs again and repeats until none has changed. So
/// the watcher and a launch that falls back need no lock.
void ClientSlot::take_policy() noexcept {
  bool changed = false;
  for (;;) {
    const std::uint64_t requested = shared_.requested_policy.load();
    const bool cannot_wait = cannot_wait_.load();
    shm::Policy policy = shm::Policy::unpack(requested);
    if (!policy.valid()) return;
    if (policy.waits_on_device() && cannot_wait) policy = kFallback;
    if (!is_under(policy)) {
      policy_.store(policy.pack());
      g_process.forget_remembered();
      changed = true;
    }
    if (changed) set_learning(policy.spacing.is_time());
    if (slot_.policy.load() != policy.pack()) {
      if (!seat_.reader()) shm::BoardView(*seat_.writable).count_held(seat_.slot);
      slot_.policy.store(policy.pack());
    }
    if (shared_.requested_policy.load() == requested && cannot_wait_.load() == cannot_wait) return;
  }
}

void ClientSlot::fall_back() noexcept {
  cannot_wait_.store(true);
  take_policy();
}

/// Of the clients of the device for which `which` is true.
template <class Which>
std::optional<std::uint64_t> ClientSlot::quiet(Which which) const noexcept {
  const shm::Board& board = seat_.board;
  const std::uint8_t device = shm::SlotInfo::unpack(shared_.info.load()).device;
  std::uint64_t jobs = 0;
  bool active = false;
  shm::for_each_other(board.used.load(), seat_.slot, [&](int index) {
    const shm::Slot& other = board.slots[static_cast<std::size_t>(index)];
    const shm::SlotInfo info = shm::SlotInfo::unpack(other.info.load());
    if (info.device != device || !which(info, other)) return;
    const std::uint64_t job = other.job.load();
    const std::uint64_t open_job = other.open_job.load();
    const bool lives = info.state == shm::SlotState::kLive;
    active = active || (lives && (shm::is_active(job) || shm::is_active(open_job)));
    // The generation makes a slot that changes hands count as a change.
    jobs += job + open_job + (std::uint64_t{info.generation} << 32U);
  });
  if (active) return std::nullopt;
  return jobs;
}

std::optional<std::uint64_t> ClientSlot::others_quiet() const noexcept {
  return quiet([](const shm::SlotInfo&, const shm::Slot&) { return true; });
}

std::optional<std::uint64_t> ClientSlot::peers_quiet() const noexcept {
  const std::uint8_t own = priority();
  return quiet([own](const shm::SlotInfo& info, const shm::Slot&) { return info.priority >= own; });
}

std::optional<std::uint64_t> ClientSlot::quiet_in_own_job() const noexcept {
  if (!shm::is_active(slot_.job.load())) return std::nullopt;
  const std::uint8_t own = priority();
  const std::uint64_t held_by_us = shm::bit(seat_.slot);
  const auto free = [&](const shm::SlotInfo& info, const shm::Slot& other) {
    return info.priority < own && (other.gate.load() & held_by_us) == 0;
  };
  return quiet(free) ? peers_quiet() : std::nullopt;
}

void ClientSlot::hold(Entry entry) noexcept {
  if (!policy().holds_on_host()) return;
  const std::uint64_t begin = base::monotonic_ns();
  const std::uint64_t gate = shared_.gate.load();
  slot_.waiters.fetch_add(1);
  while (obeys() && policy().holds_on_host() && !orders_.refuse()) {
    const std::uint32_t openings = shared_.wake.load();
    if (shared_.gate.load() == 0) break;
    base::futex_wait(shared_.wake, openings, kRecheckNs);
    const std::uint64_t now = base::monotonic_ns();
    const std::uint64_t beat = slot_.watcher_beat_ns.load();
    if (now > beat && now - beat > kWatcherLostNs) break;
  }
  slot_.waiters.fetch_sub(1);
  counter(entry, shm::Count::kWaited).fetch_add(1);
  counter(entry, shm::Count::kHeldNs).fetch_add(base::monotonic_ns() - begin);
  if (Trace* traced = g_process.trace.load()) {
    const auto holder = static_cast<std::size_t>(std::countr_zero(gate));
    const std::uint32_t pid = holder < shm::kSlots ? seat_.board.slots[holder].pid.load() : 0;
    traced->hold(shm::TraceHold::kGate, begin, gate, pid);
  }
}

void ClientSlot::wish(shm::SlotState state) noexcept {
  shm::SlotInfo info = shm::SlotInfo::unpack(slot_.info.load());
  info.state = state;
  slot_.info.store(info.pack());
}

void ClientSlot::skipped_wait(shm::TraceHold why) noexcept {
  if (slot_.skipped_waits.fetch_add(1) != 0) return;
  const char* const what = why == shm::TraceHold::kSyncPoint    ? "a sync point"
                           : why == shm::TraceHold::kEventGroup ? "an event group"
                                                                : "work that runs ahead";
  Line(Level::kWarn) << what << " took more than 5 s and is not waited for any longer "
                     << "(is the program waiting for its own later launch? policies device and "
                     << "gate do not wait for work)";
}

}  // namespace sluice::intercept
