#include "server/training/trainer_slot.hpp"

#include <unistd.h>

#include <map>
#include <set>
#include <utility>

namespace sluice::server::training {

void TrainerSlot::follow(pid_t pid) {
  pid_ = pid;
  trainer_ = {};
}

bool TrainerSlot::lives(shm::SlotOf client) const {
  if (client.slot < 0) return false;
  const auto& slot = board_->board().slots[static_cast<std::size_t>(client.slot)];
  const auto info = shm::SlotInfo::unpack(slot.info.load());
  const bool attached = info.state == shm::SlotState::kLive;
  return attached && info.generation == client.generation;
}

bool TrainerSlot::is_trainer(pid_t pid) const {
  return pid_ != 0 && pid != 0 && getpgid(pid) == pid_;
}

template <class IsClient>
void TrainerSlot::find_slot(const IsClient& is_client, shm::SlotOf& client) const {
  if (lives(client)) return;
  client = {};
  for (int i = 0; i < shm::kSlots; ++i) {
    const auto& slot = board_->board().slots[static_cast<std::size_t>(i)];
    const auto generation = shm::SlotInfo::unpack(slot.info.load()).generation;
    if (!lives({i, generation}) || !is_client(i, static_cast<pid_t>(slot.pid.load()))) continue;
    client = {i, generation};
    return;
  }
}

/// This process may have slots on several devices: that of the trainer's counts.
void TrainerSlot::find_broker() {
  const int device = device_of(trainer_.slot);
  if (broker_.slot >= 0 && device_of(broker_.slot) != device) broker_ = {};
  find_slot([&](int slot, pid_t pid) { return pid == getpid() && device_of(slot) == device; },
            broker_);
}

int TrainerSlot::device_of(int slot) const {
  const auto& of = board_->board().slots[static_cast<std::size_t>(slot)];
  return shm::SlotInfo::unpack(of.info.load()).device;
}

/// Whether both have a slot. A process gets one at its first use of the device.
bool TrainerSlot::has_board() {
  if (session_.empty() || board_) return board_.has_value();
  try {
    auto board = shm::BoardMapping::attach(session_, shm::BoardMapping::Rights::kAny);
    if (!board.writable()) {
      session_.clear();  // this user orders nobody, and that does not change
      return false;
    }
    board_.emplace(std::move(board));
  } catch (const shm::BoardError&) {
    return false;  // no controller has made it yet
  }
  return true;
}

bool TrainerSlot::find() {
  if (pid_ == 0 || !has_board()) return false;
  find_slot([this](int, pid_t pid) { return is_trainer(pid); }, trainer_);
  if (trainer_.slot >= 0) find_broker();
  return trainer_.slot >= 0 && broker_.slot >= 0;
}

shm::MemoryLine& TrainerSlot::line() const {
  return board_->board().slots[static_cast<std::size_t>(trainer_.slot)].memory;
}

TrainerMemory TrainerSlot::memory() {
  if (!find()) return {};
  return {shm::memory_of(board_->board(), trainer_), true};
}

std::string_view TrainerSlot::why_not_attached() {
  if (find()) return "";
  if (pid_ == 0) return "no trainer runs";
  if (!board_) return "no controller has made the session, or this user may not write to its board";
  if (trainer_.slot < 0) return "the trainer has not used the GPU yet, or it is outside Sluice";
  return "no model of the server is on the trainer's GPU";
}

MemoryUse TrainerSlot::memory_use() {
  MemoryUse out;
  if (!has_board()) return out;
  std::map<int, std::uint64_t> held_on;  // by device
  std::set<int> ours;
  for (int i = 0; i < shm::kSlots; ++i) {
    const shm::Slot& slot = board_->board().slots[static_cast<std::size_t>(i)];
    const auto info = shm::SlotInfo::unpack(slot.info.load());
    if (info.state == shm::SlotState::kFree) continue;
    const std::uint64_t held = slot.memory.held.load();
    held_on[info.device] += held;
    const pid_t pid = static_cast<pid_t>(slot.pid.load());
    if (pid == getpid()) {
      out.infer += held;
      ours.insert(info.device);
    }
    if (is_trainer(pid)) out.train += held;
  }
  if (ours.empty()) return {};
  for (const int device : ours) out.total += held_on.at(device);
  return out;
}

void TrainerSlot::set_grant(std::uint64_t bytes) {
  if (find()) shm::set_grant(board_->board(), broker_, trainer_, bytes);
}

std::uint64_t TrainerSlot::give(shm::MemoryOrder kind) {
  if (!find()) return 0;
  return shm::Order::unpack(shm::give_order(board_->board(), broker_, trainer_, kind)).epoch;
}

std::uint64_t TrainerSlot::order(shm::MemoryOrder kind) {
  const std::uint64_t epoch = give(kind);
  // Behind a closed gate its work would not end, and so its memory would not become free. The drain
  // ends when it has obeyed.
  if (epoch != 0 && kind != shm::MemoryOrder::kShrink) drain();
  return epoch;
}

void TrainerSlot::resume() { static_cast<void>(give(shm::MemoryOrder::kNone)); }

bool TrainerSlot::done(std::uint64_t epoch) {
  return epoch == 0 || !find() || line().done.load() >= epoch;
}

shm::ObeyParts TrainerSlot::parts() { return find() ? shm::obey_parts(line()) : shm::ObeyParts{}; }

void TrainerSlot::drain() {
  if (find()) shm::begin_drain(board_->board(), broker_, trainer_);
}

}  // namespace sluice::server::training
