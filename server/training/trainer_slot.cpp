#include "server/training/trainer_slot.hpp"

#include <unistd.h>

namespace sluice::server::training {

void TrainerSlot::follow(pid_t pid) {
  pid_ = pid;
  trainer_ = {};
}

bool TrainerSlot::lives(shm::SlotOf client) const {
  if (client.slot < 0) return false;
  const auto& slot = board_->board().slots[static_cast<std::size_t>(client.slot)];
  const auto info = shm::SlotInfo::unpack(slot.info.load());
  const bool attached =
      info.state == shm::SlotState::kLive || info.state == shm::SlotState::kFailedOpen;
  return attached && info.generation == client.generation;
}

void TrainerSlot::find_slot(pid_t pid, shm::SlotOf& client) const {
  if (lives(client)) return;
  client = {};
  for (int i = 0; i < shm::kSlots; ++i) {
    const auto& slot = board_->board().slots[static_cast<std::size_t>(i)];
    const auto generation = shm::SlotInfo::unpack(slot.info.load()).generation;
    if (static_cast<pid_t>(slot.pid.load()) != pid || !lives({i, generation})) continue;
    client = {i, generation};
    return;
  }
}

/// Whether both have a slot. A process gets one at its first use of the device.
bool TrainerSlot::has_board() {
  if (session_.empty() || board_) return board_.has_value();
  try {
    board_.emplace(shm::BoardMapping::attach(session_));
  } catch (const shm::BoardError&) {
    return false;  // no controller has made it yet
  }
  return true;
}

bool TrainerSlot::find() {
  if (pid_ == 0 || !has_board()) return false;
  find_slot(pid_, trainer_);
  if (trainer_.slot >= 0) find_slot(getpid(), broker_);
  return trainer_.slot >= 0 && broker_.slot >= 0;
}

shm::MemoryLine& TrainerSlot::line() const {
  return board_->board().slots[static_cast<std::size_t>(trainer_.slot)].memory;
}

TrainerMemory TrainerSlot::memory() {
  TrainerMemory out;
  if (!find()) return out;
  const shm::MemoryLine& words = line();
  out.attached = true;
  out.obeys = words.obedient.load() != 0;
  out.held = words.held.load();
  out.grant = shm::grant_of(board_->board(), trainer_);
  out.base = words.base.load();
  out.slope = words.slope.load();
  return out;
}

MemoryUse TrainerSlot::memory_use() {
  MemoryUse out;
  if (!has_board()) return out;
  find_slot(getpid(), broker_);
  if (broker_.slot < 0) return out;
  const auto& slots = board_->board().slots;
  const auto at = [&](int slot) -> const shm::Slot& {
    return slots[static_cast<std::size_t>(slot)];
  };
  const auto device = shm::SlotInfo::unpack(at(broker_.slot).info.load()).device;
  for (int i = 0; i < shm::kSlots; ++i) {
    const auto info = shm::SlotInfo::unpack(at(i).info.load());
    if (info.state == shm::SlotState::kFree || info.device != device) continue;
    const std::uint64_t held = at(i).memory.held.load();
    out.total += held;
    const pid_t pid = static_cast<pid_t>(at(i).pid.load());
    if (pid == getpid()) out.infer += held;
    if (pid_ != 0 && pid == pid_) out.train += held;
  }
  return out;
}

void TrainerSlot::set_grant(std::uint64_t bytes) {
  if (find()) shm::set_grant(board_->board(), broker_, trainer_, bytes);
}

std::uint64_t TrainerSlot::give(shm::MemoryOrder kind) {
  if (!find()) return 0;
  return shm::Order::unpack(shm::give_order(board_->board(), broker_, trainer_, kind)).epoch;
}

std::uint64_t TrainerSlot::order(Order kind) {
  const std::uint64_t epoch = give(static_cast<shm::MemoryOrder>(kind));
  // Behind a closed gate its work would not end, and so its memory would not become free. The drain
  // ends when it has obeyed.
  if (epoch != 0 && kind != Order::kShrink) shm::begin_drain(board_->board(), broker_, trainer_);
  return epoch;
}

void TrainerSlot::resume() { static_cast<void>(give(shm::MemoryOrder::kNone)); }

bool TrainerSlot::done(std::uint64_t epoch) {
  return epoch == 0 || !find() || line().done.load() >= epoch;
}

std::uint64_t TrainerSlot::took_ns() {
  if (!find()) return 0;
  const std::uint64_t ordered = line().order_ns.load();
  const std::uint64_t done = line().done_ns.load();
  return done > ordered ? done - ordered : 0;
}

}  // namespace sluice::server::training
