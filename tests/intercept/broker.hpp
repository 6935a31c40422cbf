#pragma once
#include "shm/memory.hpp"
#include "shm/view.hpp"
#include "tests/intercept/session.hpp"

namespace sluice::intercept::test {

/// The broker of a session in which this process is a client: a critical client that this process
/// plays too.
class Broker {
 public:
  Broker(Critical& broker, const shm::Slot& client)
      : board_(broker.board()), broker_(as_now(broker.slot())) {
    for (int i = 0; i < shm::kSlots; ++i) {
      const shm::Slot& slot = board_.slots[static_cast<std::size_t>(i)];
      if (slot.pid.load() == client.pid.load() && i != broker.slot()) client_ = as_now(i);
    }
  }
  std::uint64_t give(shm::MemoryOrder kind) const {
    return shm::give_order(board_, broker_, client_, kind);
  }
  void grant(std::uint64_t bytes) const { shm::set_grant(board_, broker_, client_, bytes); }
  [[nodiscard]] shm::SlotOf self() const { return broker_; }
  [[nodiscard]] shm::SlotOf client() const { return client_; }

 private:
  shm::SlotOf as_now(int slot) const {
    const auto word = board_.slots[static_cast<std::size_t>(slot)].info.load();
    return {slot, shm::SlotInfo::unpack(word).generation};
  }
  shm::Board& board_;
  shm::SlotOf broker_;
  shm::SlotOf client_;
};

}  // namespace sluice::intercept::test
