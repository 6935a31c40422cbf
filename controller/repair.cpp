#include "controller/repair.hpp"

#include <spdlog/spdlog.h>

#include <bit>
#include <string>

namespace sluice::controller {
namespace {

using shm::SlotInfo;
using shm::SlotState;

/// After a client's watcher died, another thread of the client may still run for a moment.
constexpr std::uint64_t kThreadsEndNs = 100'000'000;

/// Start times come in ticks of 10 ms. A process that started this much later than the attach has
/// reused the client's pid.
constexpr std::uint64_t kStartToleranceNs = 50'000'000;

std::uint64_t gates_held_by(Clients& clients, int holder) {
  std::uint64_t held = 0;
  for (int target = 0; target < shm::kSlots; ++target) {
    if ((clients.view.gate(target).load() & shm::bit(holder)) != 0) held |= shm::bit(target);
  }
  return held;
}

std::string describe_all(Clients& clients, std::uint64_t slots) {
  std::string text;
  for (; slots != 0; slots &= slots - 1) {
    text += (text.empty() ? "" : "; ") + clients.describe(std::countr_zero(slots));
  }
  return text;
}

/// Resets the slack of the other clients of a dead client's device: the announced job will not
/// come. A living client that has announced a job writes its slack again at once.
void cancel_announcement(Clients& clients, int dead) {
  const std::uint8_t device = clients.info(dead).device;
  for (int slot = 0; slot < shm::kSlots; ++slot) {
    shm::Word& slack = clients.slot(slot).slack_ns;
    const bool limited =
        clients.info(slot).device == device && slack.load() != shm::kUnlimitedSlack;
    if (limited && slot != dead) slack.store(shm::kUnlimitedSlack);
  }
}

void bury_dead(Clients& clients, int slot, std::uint64_t now_ns) {
  const bool left = clients.info(slot).state == SlotState::kLeaving;
  const bool in_job = shm::is_active(clients.view.job(slot).load());
  const std::uint64_t held = gates_held_by(clients, slot);
  shm::bury(clients.view, slot);
  cancel_announcement(clients, slot);
  clients.tenant(slot).dead_since_ns = now_ns;
  if (!left) clients.tally.deaths_repaired.fetch_add(1);
  clients.tally.gates_opened.fetch_add(static_cast<std::uint64_t>(std::popcount(held)));
  if (left) {
    spdlog::info("client left: {}", clients.describe(slot));
  } else if (held == 0) {
    spdlog::info("client died{}: {}; it held no gate", in_job ? " inside a job" : "",
                 clients.describe(slot));
  } else {
    spdlog::info("client died inside a job: {}; opened the gates of {}", clients.describe(slot),
                 describe_all(clients, held));
  }
}

void release_slot(Clients& clients, int slot) {
  spdlog::debug("slot {} is free again, pid {} is gone", slot, clients.slot(slot).pid.load());
  cancel_announcement(clients, slot);  // again: a thread of the client may have run on
  shm::release(clients.view, slot);
  clients.tenant(slot) = Tenant{};
}

bool is_gone(const Tenant& tenant, std::uint64_t now_ns) {
  if (tenant.process == nullptr || tenant.process->ended()) return true;
  // exec keeps the pid. The kernel then ends every other thread and closes the connection.
  return tenant.hung_up && now_ns - tenant.dead_since_ns >= kThreadsEndNs;
}

void repair_slot(Clients& clients, int slot, std::uint64_t now_ns) {
  const Tenant& tenant = clients.tenant(slot);
  switch (clients.info(slot).state) {
    case SlotState::kLive:
    case SlotState::kFailedOpen:
    case SlotState::kLeaving:
      if (clients.slot(slot).alive.probe() != shm::RobustMutex::Found::kHeld) {
        bury_dead(clients, slot, now_ns);
      }
      break;
    case SlotState::kReserved:
      // The client holds no mutex yet, so only its process and its connection show its end.
      if (tenant.hung_up || tenant.process == nullptr || tenant.process->ended()) {
        take_back_reserved(clients, slot);
      }
      break;
    case SlotState::kDead:
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
std::shared_ptr<const ClientProcess> find_process(Clients& clients, int index) {
  const shm::Slot& slot = clients.slot(index);
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

void repair(Clients& clients, std::uint64_t now_ns) {
  const std::uint64_t before = clients.view.used().load();
  for (std::uint64_t used = before; used != 0; used &= used - 1) {
    const int slot = std::countr_zero(used);
    if (slot < shm::kSlots) repair_slot(clients, slot, now_ns);
  }
  update_outranked(clients);
}

void adopt(Clients& clients, std::uint64_t now_ns) {
  for (int slot = 0; slot < shm::kSlots; ++slot) {
    if (clients.info(slot).state == SlotState::kFree) continue;
    // A controller may have been killed between the two steps of reserve() or release().
    clients.view.used().fetch_or(shm::bit(slot));
    Tenant& tenant = clients.tenant(slot);
    tenant.process = find_process(clients, slot);
    tenant.dead_since_ns = now_ns;
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
}

void open_all_gates(Clients& clients) {
  for (int slot = 0; slot < shm::kSlots; ++slot) shm::keep_open(clients.view, slot);
}

}  // namespace sluice::controller
