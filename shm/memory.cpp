#include "shm/memory.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/futex.hpp"
#include "shm/view.hpp"
#include "sluice/sluice.h"

namespace sluice::shm {

static_assert(static_cast<int>(MemoryOrder::kNone) == SLUICE_ORDER_NONE);
static_assert(static_cast<int>(MemoryOrder::kShrink) == SLUICE_ORDER_SHRINK);
static_assert(static_cast<int>(MemoryOrder::kDrop) == SLUICE_ORDER_DROP);
static_assert(static_cast<int>(MemoryOrder::kSleep) == SLUICE_ORDER_SLEEP);
static_assert(static_cast<int>(MemoryOrder::kEpoch) == SLUICE_ORDER_EPOCH);
static_assert(kNoLimit == SLUICE_NO_LIMIT);

namespace {

MemoryLine& line_of(Board& board, SlotOf client) noexcept {
  return board.slots[static_cast<std::size_t>(client.slot)].memory;
}
const MemoryLine& line_of(const Board& board, SlotOf client) noexcept {
  return board.slots[static_cast<std::size_t>(client.slot)].memory;
}

/// For a broker whose words are not in the line yet. The words of an earlier broker, or for an
/// earlier client, must not become valid with our name, so they are replaced first.
void take_over(MemoryLine& line, SlotOf broker, SlotOf client) noexcept {
  if (line.broker.load() == id_of(broker) && line.client.load() == id_of(client)) return;
  line.broker.store(0);
  line.grant.store(kNoLimit);
  const Order last = Order::unpack(line.order.load());
  line.order.store(Order{last.epoch + 1, MemoryOrder::kNone}.pack());
  line.client.store(id_of(client));
  line.broker.store(id_of(broker));
}

void wake(MemoryLine& line) noexcept {
  line.wake.fetch_add(1);
  base::futex_wake_all(line.wake);
}

}  // namespace

bool client_lives(const Board& board, std::uint32_t id) noexcept {
  const int slot = slot_of(id);
  if (slot < 0 || slot >= kSlots) return false;
  const Slot& of = board.slots[static_cast<std::size_t>(slot)];
  return has_client(SlotInfo::unpack(of.info.load()), id) && of.alive.held();
}

bool has_broker(const Board& board, SlotOf client) noexcept {
  const MemoryLine& line = line_of(board, client);
  return line.client.load() == id_of(client) && client_lives(board, line.broker.load());
}

void set_grant(Board& board, SlotOf broker, SlotOf client, std::uint64_t bytes) noexcept {
  MemoryLine& line = line_of(board, client);
  take_over(line, broker, client);
  if (line.grant.exchange(bytes) != bytes) wake(line);
}

std::uint64_t give_order(Board& board, SlotOf broker, SlotOf client, MemoryOrder kind) noexcept {
  MemoryLine& line = line_of(board, client);
  take_over(line, broker, client);
  const Order order{Order::unpack(line.order.load()).epoch + 1, kind};
  line.order_ns.store(base::monotonic_ns());
  line.order.store(order.pack());
  if (order.refuses()) {
    // After the order: whoever sees the bit finds the order. Launches that are held on the host
    // look when they wake.
    Slot& slot = board.slots[static_cast<std::size_t>(client.slot)];
    slot.outranked.fetch_or(kOrdered);
    slot.wake.fetch_add(1);
    if (slot.waiters.load() != 0) base::futex_wake_all(slot.wake);
  }
  wake(line);
  return order.pack();
}

void begin_drain(Board& board, SlotOf broker, SlotOf client) noexcept {
  BoardView view(board);
  begin_draining(view, client.slot, client.generation, id_of(broker));
  // Long launches may wait for slack too. Those who announce jobs leave a drained slot alone.
  board.slots[static_cast<std::size_t>(client.slot)].slack_ns.store(kUnlimitedSlack);
}

void end_drain(Board& board, SlotOf broker, SlotOf client) noexcept {
  BoardView view(board);
  end_draining(view, client.slot, id_of(broker));
}

std::uint64_t grant_of(const Board& board, SlotOf client) noexcept {
  return has_broker(board, client) ? line_of(board, client).grant.load() : kNoLimit;
}

ClientMemory memory_of(const Board& board, SlotOf client) noexcept {
  const MemoryLine& line = line_of(board, client);
  return {line.held.load(), grant_of(board, client), line.base.load(), line.slope.load(),
          line.obedient.load() != 0};
}

Order last_order(const Board& board, SlotOf client) noexcept {
  // The broker is read first: one that takes over replaces the order before it writes its name.
  if (!has_broker(board, client)) return {};
  const Order order = Order::unpack(line_of(board, client).order.load());
  return order.kind <= MemoryOrder::kEpoch ? order : Order{};
}

Order pending_order(const Board& board, SlotOf client) noexcept {
  const Order order = last_order(board, client);
  const bool pending =
      order.kind != MemoryOrder::kNone && order.epoch != line_of(board, client).done.load();
  return pending ? order : Order{};
}

bool note_obeyed(MemoryLine& line, std::uint64_t epoch) noexcept {
  if (epoch > Order::unpack(line.order.load()).epoch) return false;
  std::uint64_t before = line.done.load();
  do {
    if (epoch <= before) return false;
  } while (!line.done.compare_exchange_weak(before, epoch));
  line.done_ns.store(base::monotonic_ns());
  line.answered.fetch_add(1);
  base::futex_wake_all(line.answered);
  return true;
}

void note_waited(MemoryLine& line, std::uint64_t began_ns, std::uint64_t ended_ns) noexcept {
  if (line.dropped_ns.load() < line.order_ns.load()) {
    line.drained_ns.store(0);
    line.dropped_ns.store(began_ns);
  }
  line.drained_ns.fetch_add(ended_ns - began_ns);
}

ObeyParts obey_parts(const MemoryLine& line) noexcept {
  const std::uint64_t ordered = line.order_ns.load();
  const std::uint64_t dropped = line.dropped_ns.load();
  const std::uint64_t done = line.done_ns.load();
  if (done <= ordered) return {};
  if (dropped < ordered || dropped > done) return {done - ordered, 0, 0};
  const std::uint64_t drained = std::min(line.drained_ns.load(), done - dropped);
  return {dropped - ordered, drained, done - dropped - drained};
}

void note_held(MemoryLine& line, std::uint64_t bytes) noexcept {
  line.held.store(bytes);
  if (line.peak.load() < bytes) line.peak.store(bytes);
}

void reset(MemoryLine& line) noexcept {
  line.broker.store(0);
  line.client.store(0);
  line.grant.store(kNoLimit);
  line.held.store(0);
  line.peak.store(0);
  line.base.store(0);
  line.slope.store(0);
  line.order.store(0);
  line.done.store(0);
  line.critical.store(0);
  line.draining.store(0);
  line.order_ns.store(0);
  line.done_ns.store(0);
  line.obedient.store(0);
  line.refused.store(0);
  line.refused_allocations.store(0);
  line.dropped_ns.store(0);
  line.drained_ns.store(0);
}

}  // namespace sluice::shm
