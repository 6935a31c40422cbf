#include "tests/protocol/calls.hpp"

#include "shm/gates.hpp"

namespace sluice::protocol::calls {

void settle(ModelView& board, int holder, int target) { shm::settle(board, holder, target); }
void begin_job(ModelView& board, int self) { shm::begin_job(board, self); }
void end_job(ModelView& board, int self) { shm::end_job(board, self); }
bool go_live(ModelView& board, int self) { return shm::go_live(board, self); }
void keep_open(ModelView& board, int self) { shm::keep_open(board, self); }
void leave(ModelView& board, int self) { shm::leave(board, self); }
void waive(ModelView& board, int self, int holder, std::uint64_t job) {
  shm::waive(board, self, holder, job);
}
void begin_draining(ModelView& board, int target, std::uint32_t generation, std::uint32_t broker) {
  shm::begin_draining(board, target, generation, broker);
}
void end_draining(ModelView& board, int target, std::uint32_t broker) {
  shm::end_draining(board, target, broker);
}
void tend_draining(ModelView& board, int self) { shm::tend_draining(board, self); }
bool mark_dead(ModelView& board, int slot) { return shm::mark_dead(board, slot); }
void tend_gate(ModelView& board, int self) { shm::tend_gate(board, self); }
void tend_readers(ModelView& board, int self) { shm::tend_readers(board, self); }
void settle_outranked(ModelView& board, int slot) { shm::settle_outranked(board, slot); }
void bury(ModelView& board, int slot) { shm::bury(board, slot); }
void release(ModelView& board, int slot) { shm::release(board, slot); }
void reserve(ModelView& board, int slot, std::uint8_t priority, std::uint8_t device) {
  shm::reserve(board, slot, priority, device);
}
void change_priority(ModelView& board, int slot, std::uint8_t priority) {
  shm::change_priority(board, slot, priority);
}

}  // namespace sluice::protocol::calls
