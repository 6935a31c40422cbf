#pragma once
#include "tests/protocol/model.hpp"

/// The functions of shm/gates.hpp, instantiated for the model. Only calls.cpp includes gates.hpp,
/// so only calls.cpp is compiled again for each mutation.
namespace sluice::protocol::calls {

void settle(ModelView& board, int holder, int target);
void begin_job(ModelView& board, int self);
void end_job(ModelView& board, int self);
bool go_live(ModelView& board, int self);
void keep_open(ModelView& board, int self);
void leave(ModelView& board, int self);
void waive(ModelView& board, int self, int holder, std::uint64_t job);
void begin_draining(ModelView& board, int target, std::uint32_t generation, std::uint32_t broker);
void end_draining(ModelView& board, int target, std::uint32_t broker);
void tend_draining(ModelView& board, int self);
bool mark_dead(ModelView& board, int slot);
void tend_gate(ModelView& board, int self);
void tend_readers(ModelView& board, int self);
void settle_outranked(ModelView& board, int slot);
void bury(ModelView& board, int slot);
void release(ModelView& board, int slot);
void reserve(ModelView& board, int slot, std::uint8_t priority, std::uint8_t device);
void change_priority(ModelView& board, int slot, std::uint8_t priority);

}  // namespace sluice::protocol::calls
