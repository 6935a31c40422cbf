#include "server/training/trainer_slot.hpp"

namespace sluice::server::training {

void TrainerSlot::follow(pid_t pid) {
  pid_ = pid;
  index_ = -1;
}

shm::Slot* TrainerSlot::slot() {
  if (pid_ == 0 || session_.empty()) return nullptr;
  if (!board_) {
    try {
      board_.emplace(shm::BoardMapping::attach(session_));
    } catch (const shm::BoardError&) {
      return nullptr;  // no controller has made it yet
    }
  }
  auto& slots = board_->board().slots;
  if (index_ < 0) {
    for (int i = 0; i < shm::kSlots; ++i) {
      auto& slot = slots[static_cast<std::size_t>(i)];
      const auto info = shm::SlotInfo::unpack(slot.info.load());
      if (info.state != shm::SlotState::kLive || static_cast<pid_t>(slot.pid.load()) != pid_) {
        continue;
      }
      index_ = i;
      generation_ = info.generation;
    }
  }
  if (index_ < 0) return nullptr;
  shm::Slot& slot = slots[static_cast<std::size_t>(index_)];
  const auto info = shm::SlotInfo::unpack(slot.info.load());
  const bool same = info.generation == generation_ && info.state == shm::SlotState::kLive;
  return same ? &slot : nullptr;
}

TrainerMemory TrainerSlot::memory() {
  TrainerMemory out;
  out.attached = slot() != nullptr;
  return out;
}

void TrainerSlot::set_grant(std::uint64_t /*bytes*/) {}
std::uint64_t TrainerSlot::order(Order /*kind*/) { return 0; }
void TrainerSlot::resume() {}
bool TrainerSlot::done(std::uint64_t /*epoch*/) { return true; }
std::uint64_t TrainerSlot::took_ns() { return 0; }

}  // namespace sluice::server::training
