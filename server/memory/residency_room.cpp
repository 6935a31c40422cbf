// Room for a model that is being loaded. For the broker it is one more model that is wanted.
#include <algorithm>

#include "base/clock.hpp"
#include "server/memory/residency.hpp"

namespace sluice::server::memory {

Residency::Room::Room(Residency& residency) : residency_(residency) {
  const std::lock_guard moves(residency.moves_);
  const std::lock_guard lock(residency.mutex_);
  MemoryState state;
  residency.count_others(state);
  residency.room_.state = RoomState::kLoading;
  residency.room_.before = state.other_bytes;
}

bool Residency::Room::make(std::uint64_t more) {
  Lock lock(residency_.mutex_);
  RoomWish& room = residency_.room_;
  room = {RoomState::kAsked, more, {}, room.before, 0};
  room.memory.id = kRoom;
  room.memory.wanted_ns = base::monotonic_ns();
  residency_.wake();
  residency_.room_settled_.wait(lock, [&] {
    return residency_.stop_ || room.state == RoomState::kThere || room.state == RoomState::kRefused;
  });
  return room.state == RoomState::kThere;
}

Residency::Room::~Room() {
  const std::lock_guard lock(residency_.mutex_);
  residency_.room_ = {};
}

void Residency::look_at_room(MemoryState& state) {
  if (room_.state == RoomState::kAsked) {
    const std::uint64_t pool = options_.broker.pool_bytes;
    std::uint64_t kept = state.other_bytes + state.loading_bytes;
    for (const TrainerState& trainer : state.trainers) {
      kept += trainer.obeys && trainer.may_shrink ? trainer.base : trainer.held;
    }
    const std::uint64_t most = pool - std::min(pool, kept);
    const std::int64_t free = free_bytes(options_.broker, state);
    const std::uint64_t now_free = free < 0 ? 0 : static_cast<std::uint64_t>(free);
    room_.memory.bytes = std::min(now_free + room_.more, most);
    room_.state = RoomState::kWanted;
    if (room_.memory.bytes <= now_free) settle_room(RoomState::kRefused);
  }
  if (room_.state == RoomState::kWanted) state.models.push_back(room_.memory);
}

void Residency::settle_room(RoomState state) {
  room_.state = state;
  room_settled_.notify_all();
}

}  // namespace sluice::server::memory
