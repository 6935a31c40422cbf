#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <initializer_list>

#include "shm/board.hpp"

/// The gate protocol: which process closes which gate, and when.
///
///   Invariant: when everything in flight has finished, a gate holds exactly the bits of the
///   active, living, higher-priority clients of its device, except the bits that its owner waived,
///   and none while its client is drained.
///
/// The bit of holder h in the gate of target t has three kinds of writers: h at the begin and end
/// of a job, the owner of t, and the controller. They take no locks. Each writer follows one rule,
/// settle(): write the bit that the inputs ask for, read the inputs again, and repeat until they
/// did not change. So the last writer has seen inputs that were current after its write, and a
/// writer that was overtaken corrects itself. Inputs change before the bits that depend on them,
/// and every access is sequentially consistent. So for a change of an input and a concurrent
/// settle(), at least one of the two sees the other.
///
/// The functions are templates over a View of the board, so that the model checker in
/// tests/protocol runs exactly this code. A View has the words info(s), job(s), gate(s),
/// waived(target, holder), outranked(s), draining(s), reader(s) and used(), with load(), store(),
/// fetch_or(), fetch_and(), fetch_add() and compare_exchange(). watched(s) says whether a thread
/// holds the mutex of a slot, or whether the slot has a reader. The View also has two
/// notifications: closed(s) after a gate changed from open to closed, and opened(s, bits) after
/// clearing `bits` changed it back.
///
/// The node service is the owner of a reader's slot as far as this file is concerned: it makes the
/// calls of the owner, in its only thread.
///
/// Liveness is between peers. Every watcher marks the dead clients of its device (mark_dead) and
/// corrects its own gate (tend_gate) on each tick. The controller is not needed for that. A dead
/// controller only means that nobody can attach and that no slot is freed.
namespace sluice::shm {

constexpr std::uint64_t bit(int index) noexcept { return std::uint64_t{1} << index; }
constexpr bool is_active(std::uint64_t job) noexcept { return (job & 1U) != 0; }

/// Whether a slot in this state has a client that is not exiting or dead.
constexpr bool lives(SlotState state) noexcept {
  return state == SlotState::kReserved || state == SlotState::kLive;
}

/// A slot and its client. The generation tells the client from earlier ones in the slot.
struct SlotOf {
  int slot = -1;
  std::uint32_t generation = 0;
};

/// A client in half a word: never 0, and no other client's until the slot has changed hands 2^24
/// times.
constexpr std::uint32_t id_of(SlotOf client) noexcept {
  return (client.generation << 8U) | static_cast<std::uint32_t>(client.slot + 1);
}
constexpr int slot_of(std::uint32_t id) noexcept { return static_cast<int>(id & 0x7fU) - 1; }

/// Set in the id in MemoryLine::draining while the draining ends.
inline constexpr std::uint32_t kDrainEnds = 0x80;
constexpr bool is_draining(std::uint64_t word) noexcept {
  return word != 0 && (word & kDrainEnds) == 0;
}

/// Whether a slot with this info has the client of the id, alive as far as the info says.
constexpr bool has_client(SlotInfo info, std::uint32_t id) noexcept {
  return info.state == SlotState::kLive && id == id_of({slot_of(id), info.generation});
}

/// Whether a holder in state `h` with job counter `job` must keep the gate of `t` closed.
constexpr bool holds(SlotInfo h, std::uint64_t job, SlotInfo t) noexcept {
  return h.state == SlotState::kLive && is_active(job) && t.state == SlotState::kLive &&
         h.device == t.device && h.priority > t.priority;
}

template <class View>
void open_bits(View& board, int target, std::uint64_t bits) {
  if ((board.gate(target).load() & bits) == 0) return;
  const std::uint64_t before = board.gate(target).fetch_and(~bits);
  if (before != 0 && (before & ~bits) == 0) board.opened(target, before & bits);
}

template <class View>
void close_bit(View& board, int target, int holder) {
  if (board.gate(target).fetch_or(bit(holder)) == 0) board.closed(target);
}

/// Sets or clears the bit of `holder` in the gate of `target`. Any writer may call it.
template <class View>
void settle(View& board, int holder, int target) {
  for (;;) {
    const std::uint64_t h = board.info(holder).load();
    const std::uint64_t t = board.info(target).load();
    const std::uint64_t job = board.job(holder).load();
    const std::uint64_t waived = board.waived(target, holder).load();
    const std::uint64_t draining = board.draining(target).load();
    const bool may_hold = holds(SlotInfo::unpack(h), job, SlotInfo::unpack(t));
    if (may_hold && waived != job && !is_draining(draining)) {
      close_bit(board, target, holder);
    } else {
      open_bits(board, target, bit(holder));
    }
    if (board.info(holder).load() == h && board.info(target).load() == t &&
        board.job(holder).load() == job && board.waived(target, holder).load() == waived &&
        board.draining(target).load() == draining) {
      return;
    }
  }
}

/// Calls `visit(slot)` for each set bit of `used` except `self` and the controller's bit.
template <class Visit>
void for_each_other(std::uint64_t used, int self, Visit visit) {
  for (used &= ~bit(self) & ~bit(kControllerBit); used != 0; used &= used - 1) {
    visit(std::countr_zero(used));
  }
}

/// The first begin of overlapping jobs of `self`, which becomes active. The caller serialises begin
/// and end inside its process.
template <class View>
void begin_job(View& board, int self) {
  board.job(self).fetch_add(1);
  for_each_other(board.used().load(), self, [&](int target) {
    // Read first: most slots need no change, and a read keeps their cache line shared.
    const SlotInfo t = SlotInfo::unpack(board.info(target).load());
    const SlotInfo h = SlotInfo::unpack(board.info(self).load());
    if (holds(h, 1, t)) settle(board, self, target);
  });
}

/// The last end of overlapping jobs of `self`.
template <class View>
void end_job(View& board, int self) {
  board.job(self).fetch_add(1);
  for_each_other(board.used().load(), self,
                 [&](int target) { open_bits(board, target, bit(self)); });
}

/// Corrects every bit in the gate of `self`. Call after `self` goes live or changes priority.
template <class View>
void settle_own_gate(View& board, int self) {
  for_each_other(board.used().load(), self, [&](int holder) { settle(board, holder, self); });
}

/// Corrects the bit of `self` in every other gate. Call after `self` changes priority.
template <class View>
void settle_held_gates(View& board, int self) {
  for_each_other(board.used().load(), self, [&](int target) { settle(board, self, target); });
}

/// Moves a slot from any of the states `from` to `to` in one step and keeps the other fields.
/// Returns false if the slot is in another state.
template <class View>
bool change_state(View& board, int slot, std::initializer_list<SlotState> from, SlotState to) {
  std::uint64_t word = board.info(slot).load();
  for (;;) {
    SlotInfo info = SlotInfo::unpack(word);
    if (std::find(from.begin(), from.end(), info.state) == from.end()) return false;
    info.state = to;
    if (board.info(slot).compare_exchange(word, info.pack())) return true;
  }
}

/// For the owner, once at attach: starts to obey the gate. A job may already have begun. Returns
/// false if the slot is in another state.
template <class View>
bool go_live(View& board, int self) {
  if (!change_state(board, self, {SlotState::kReserved}, SlotState::kLive)) return false;
  settle_own_gate(board, self);
  settle_held_gates(board, self);
  return true;
}

/// For the owner, on every tick of its watcher while it is leaving: a holder that saw the slot live
/// may still close the gate.
template <class View>
void keep_open(View& board, int self) {
  open_bits(board, self, ~std::uint64_t{0});
}

/// For the owner, once at exit, on any thread: opens its gate and every gate that it holds.
template <class View>
void leave(View& board, int self) {
  change_state(board, self, {SlotState::kReserved, SlotState::kLive}, SlotState::kLeaving);
  keep_open(board, self);
  for_each_other(board.used().load(), self,
                 [&](int target) { open_bits(board, target, bit(self)); });
}

/// For the owner: opens its gate for this one job of `holder`, which is silent or makes no
/// progress. `job` 0: the holder makes progress again, so its job counts again.
template <class View>
void waive(View& board, int self, int holder, std::uint64_t job) {
  board.waived(self, holder).store(job);
  settle(board, holder, self);
}

/// For the broker, or for the owner when it has given back its memory. The word shows that the
/// draining has ended until the gate is right, so that the owner puts the gate right if the broker
/// dies in between.
template <class View>
void end_draining(View& board, int target, std::uint32_t broker) {
  std::uint64_t drains = broker;
  board.draining(target).compare_exchange(drains, broker | kDrainEnds);
  std::uint64_t ends = broker | kDrainEnds;
  if (board.draining(target).load() != ends) return;
  settle_own_gate(board, target);
  board.draining(target).compare_exchange(ends, 0);
}

/// For a broker: from now on nobody holds `target`, so that its queue empties and its calls that
/// give memory back do not block behind a closed gate. The word is the id of the broker, so that
/// others can tell whether it lives.
template <class View>
void begin_draining(View& board, int target, std::uint32_t generation, std::uint32_t broker) {
  board.draining(target).store(broker);
  settle_own_gate(board, target);
  // The slot may have another client by now, which nobody drains.
  if (SlotInfo::unpack(board.info(target).load()).generation != generation) {
    end_draining(board, target, broker);
  }
}

/// For the owner, on every tick of its watcher: ends the draining of a broker that has died.
template <class View>
void tend_draining(View& board, int self) {
  const auto word = static_cast<std::uint32_t>(board.draining(self).load());
  const std::uint32_t broker = word & ~kDrainEnds;
  if (broker == 0) return;
  const int slot = slot_of(broker);
  const bool lives = slot >= 0 && slot < kSlots &&
                     has_client(SlotInfo::unpack(board.info(slot).load()), broker) &&
                     board.watched(slot);
  if (!lives) end_draining(board, self, broker);
}

/// For any process: marks the client of a slot as dead if no thread holds the slot's mutex. Returns
/// true if this call changed the state. Each target then opens its own gate.
///
/// A client that is leaving holds nobody, and one that is reserved has no mutex yet.
///
/// The state is read first. A client takes the mutex before it goes live and never releases it. So
/// a mutex that nobody holds after that read belongs to a client that has died, and the exchange
/// fails if the slot has another client by now: the word contains the generation.
template <class View>
bool mark_dead(View& board, int slot) {
  std::uint64_t word = board.info(slot).load();
  SlotInfo info = SlotInfo::unpack(word);
  if (info.state != SlotState::kLive || board.watched(slot)) return false;
  info.state = SlotState::kDead;
  return board.info(slot).compare_exchange(word, info.pack());
}

/// For the owner, on every tick of its watcher: corrects the bits of those who hold its gate. Some
/// bits have no other writer left: those of a dead holder, and of one that was stopped between its
/// write and its re-read.
template <class View>
void tend_gate(View& board, int self) {
  for_each_other(board.gate(self).load(), self, [&](int holder) { settle(board, holder, self); });
}

/// For the node service and for every client that may write, on each tick: tends the gates of the
/// readers. A client does so because the service may be gone while a holder dies.
template <class View>
void tend_readers(View& board, int self) {
  for_each_other(board.used().load(), self, [&](int target) {
    if (board.reader(target).load() != 0) tend_gate(board, target);
  });
}

/// Whether a client of higher priority lives on the device of `slot`. Reads the board once.
template <class View>
bool is_outranked(View& board, int slot) {
  const SlotInfo own = SlotInfo::unpack(board.info(slot).load());
  bool outranked = false;
  for_each_other(board.used().load(), slot, [&](int other) {
    const SlotInfo info = SlotInfo::unpack(board.info(other).load());
    outranked = outranked ||
                (lives(info.state) && info.device == own.device && info.priority > own.priority);
  });
  return outranked;
}

/// Corrects the bit kOutranked of `slot`, by the rule of settle(). The owner calls it on each tick.
/// The controller calls it for every slot when a priority has changed and before a new client may
/// begin a job: a 1 that is missing costs the new client its protection.
template <class View>
void settle_outranked(View& board, int slot) {
  for (;;) {
    const bool outranked = is_outranked(board, slot);
    // Read first: the client reads this cache line before each launch.
    if (((board.outranked(slot).load() & kOutranked) != 0) != outranked) {
      outranked ? board.outranked(slot).fetch_or(kOutranked)
                : board.outranked(slot).fetch_and(~std::uint64_t{kOutranked});
    }
    if (is_outranked(board, slot) == outranked) return;
  }
}

/// For the controller: takes a dead client out and opens the gates that it held. The controller
/// repeats this on every heartbeat until the process is gone: a thread of the process may run for a
/// moment after the kernel released the watcher's mutex, and may write last. All slots are visited,
/// not only the used ones: the dead holder may have set its bit in a slot that was freed meanwhile.
template <class View>
void bury(View& board, int slot) {
  change_state(board, slot, {SlotState::kReserved, SlotState::kLive, SlotState::kLeaving},
               SlotState::kDead);
  for_each_other(~std::uint64_t{0}, slot, [&](int target) { open_bits(board, target, bit(slot)); });
  keep_open(board, slot);
}

/// For the controller, when the process of a buried slot is gone: frees the slot.
template <class View>
void release(View& board, int slot) {
  bury(board, slot);
  const SlotInfo old = SlotInfo::unpack(board.info(slot).load());
  if (is_active(board.job(slot).load())) board.job(slot).fetch_add(1);
  board.info(slot).store(SlotInfo{SlotState::kFree, 0, 0, old.generation + 1}.pack());
  board.used().fetch_and(~bit(slot));
}

/// For the controller: gives a free slot to a new client. `used` is set before the client can go
/// live, so that a job that begins meanwhile sees the client or is seen by it.
template <class View>
void reserve(View& board, int slot, std::uint8_t priority, std::uint8_t device) {
  const SlotInfo old = SlotInfo::unpack(board.info(slot).load());
  for (int holder = 0; holder < kSlots; ++holder) board.waived(slot, holder).store(0);
  board.draining(slot).store(0);
  board.used().fetch_or(bit(slot));
  board.info(slot).store(SlotInfo{SlotState::kReserved, priority, device, old.generation}.pack());
}

/// For the controller: changes the priority of a client.
template <class View>
void change_priority(View& board, int slot, std::uint8_t priority) {
  std::uint64_t word = board.info(slot).load();
  SlotInfo info{};
  do {
    info = SlotInfo::unpack(word);
    info.priority = priority;
  } while (!board.info(slot).compare_exchange(word, info.pack()));
  settle_own_gate(board, slot);
  settle_held_gates(board, slot);
}

}  // namespace sluice::shm
