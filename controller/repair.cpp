#include "controller/repair.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>

#include "controller/readers.hpp"
#include "shm/memory.hpp"

namespace sluice::controller {
namespace {

using shm::SlotInfo;
using shm::SlotState;

/// After a client's watcher died, another thread of the client may still run for a moment.
constexpr std::uint64_t kThreadsEndNs = 100'000'000;

/// A reader that has lost its connection asks for another after 0.1 s.
constexpr std::uint64_t kReaderReturnsNs = 5'000'000'000;

/// Start times come in ticks of 10 ms. A process that started this much later than the attach has
/// reused the client's pid.
constexpr std::uint64_t kStartToleranceNs = 50'000'000;

/// At the first sight of a death. The client's peers may have seen it first and have opened their
/// gates; bury() is for those whose watcher is late.
void bury_dead(Clients& clients, int slot, std::uint64_t now_ns) {
  const bool left = clients.info(slot).state == SlotState::kLeaving;
  const bool in_job = shm::is_active(clients.view.job(slot).load());
  shm::bury(clients.view, slot);
  clients.tenant(slot).dead_since_ns = now_ns;
  if (left) {
    spdlog::info("client left: {}", clients.describe(slot));
    return;
  }
  clients.tally.deaths_repaired.fetch_add(1);
  spdlog::info("client died{}: {}", in_job ? " inside a job" : "", clients.describe(slot));
}

void release_slot(Clients& clients, int slot) {
  spdlog::debug("slot {} is free again, pid {} is gone", slot, clients.slot(slot).pid.load());
  // Not earlier: the memory of a killed process is free only when the process is gone.
  shm::reset(clients.slot(slot).memory);
  shm::release(clients.view, slot);
  clients.tenant(slot) = Tenant{};
}

bool has_ended(const Tenant& tenant) {
  return tenant.process == nullptr || tenant.process->ended();
}

bool is_gone(const Tenant& tenant, std::uint64_t now_ns) {
  // exec keeps the pid. The kernel then ends every other thread and closes the connection.
  return has_ended(tenant) ||
         (tenant.hung_up_ns != 0 && now_ns - tenant.dead_since_ns >= kThreadsEndNs);
}

/// A reader holds no mutex, and has nobody who waits for its death. One that lives connects again
/// at once; one that has exec'd does not.
bool is_dead(Clients& clients, int slot, std::uint64_t now_ns) {
  if (!clients.is_reader(slot)) return !clients.slot(slot).alive.held();
  const Tenant& tenant = clients.tenant(slot);
  return has_ended(tenant) ||
         (tenant.hung_up_ns != 0 && now_ns - tenant.hung_up_ns >= kReaderReturnsNs);
}

void repair_slot(Clients& clients, int slot, std::uint64_t now_ns) {
  const Tenant& tenant = clients.tenant(slot);
  const SlotState state = clients.info(slot).state;
  // Only a stray or hostile write makes such a slot. Its state may be none of those below.
  if (state != SlotState::kFree && tenant.process == nullptr) return release_slot(clients, slot);
  switch (state) {
    case SlotState::kLive:
    case SlotState::kLeaving:
      if (is_dead(clients, slot, now_ns)) bury_dead(clients, slot, now_ns);
      break;
    case SlotState::kReserved:
      // The client holds no mutex yet, so only its process and its connection show its end.
      if (tenant.hung_up_ns != 0 || has_ended(tenant)) {
        take_back_reserved(clients, slot);
      }
      break;
    case SlotState::kDead:
      if (tenant.dead_since_ns == 0) {
        bury_dead(clients, slot, now_ns);
        break;  // For one beat the slot shows the death to tend_readers().
      }
      shm::bury(clients.view, slot);
      if (is_gone(tenant, now_ns)) release_slot(clients, slot);
      break;
    case SlotState::kFree:
      clients.view.used().fetch_and(
          ~shm::bit(slot));  // an earlier controller was killed in release()
      break;
  }
}

/// The process of an adopted slot. Null if it is gone.
std::shared_ptr<const ClientProcess> find_process(const shm::Slot& slot) {
  const auto pid = static_cast<pid_t>(slot.pid.load());
  auto process = std::make_shared<const ClientProcess>(ClientProcess::with_pid(pid));
  if (process->ended()) return nullptr;
  const std::optional<std::uint64_t> started = started_ns(pid);
  if (started && *started > slot.attached_ns.load() + kStartToleranceNs) return nullptr;
  return process;
}

}  // namespace

void take_back_reserved(Clients& clients, int slot) {
  if (!shm::change_state(clients.view, slot, {SlotState::kReserved}, SlotState::kDead)) return;
  spdlog::info("client never came: {}", clients.describe(slot));
  release_slot(clients, slot);
}

void take_back_dead(Clients& clients, int slot) {
  if (clients.info(slot).state != SlotState::kDead) return;
  shm::bury(clients.view, slot);
  release_slot(clients, slot);
}

bool any_process_lives(const shm::Board& board) {
  return std::any_of(board.slots.begin(), board.slots.end(), [](const shm::Slot& slot) {
    return SlotInfo::unpack(slot.info.load()).state != SlotState::kFree && find_process(slot);
  });
}

void repair(Clients& clients, std::uint64_t now_ns) {
  const std::uint64_t before = clients.view.used().load();
  for (std::uint64_t used = before; used != 0; used &= used - 1) {
    const int slot = std::countr_zero(used);
    if (slot < shm::kSlots) repair_slot(clients, slot, now_ns);
  }
  tend_readers(clients, now_ns);  // after the dead have been found
}

void adopt(Clients& clients, Admission& admission, std::uint64_t now_ns) {
  for (int slot = 0; slot < shm::kSlots; ++slot) {
    const SlotState state = clients.info(slot).state;
    if (state == SlotState::kFree) continue;
    // A controller may have been killed between the two steps of reserve() or release().
    clients.view.used().fetch_or(shm::bit(slot));
    Tenant& tenant = clients.tenant(slot);
    tenant.process = find_process(clients.slot(slot));
    tenant.adopted = true;
    // The former controller may have counted this death already.
    if (state == SlotState::kDead) tenant.dead_since_ns = now_ns;
    // The announcer may have died meanwhile. A living one writes its slack again at once.
    if (clients.is_reader(slot)) clients.slot(slot).slack_ns.store(shm::kUnlimitedSlack);
    const auto pid = static_cast<pid_t>(clients.slot(slot).pid.load());
    tenant.uid = admission.owner_of(user_of(pid).value_or(clients.slot(slot).uid.load()));
    if (tenant.process == nullptr) {
      spdlog::info("client died while there was no controller: {}", clients.describe(slot));
      clients.tally.deaths_repaired.fetch_add(1);
      release_slot(clients, slot);
    }
  }
  repair(clients, now_ns);
  for (int target = 0; target < shm::kSlots; ++target) {
    shm::open_bits(clients.view, target, shm::bit(target) | shm::bit(shm::kControllerBit));
    for (int holder = 0; holder < shm::kSlots; ++holder) {
      if (holder != target) shm::settle(clients.view, holder, target);
    }
  }
  update_outranked(clients);
}

}  // namespace sluice::controller
