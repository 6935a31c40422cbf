#include "intercept/slot/orders.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "base/futex.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {
namespace {

using shm::MemoryOrder;
using shm::Order;

/// A sleeping program looks again this often, so that the death of the broker wakes it.
constexpr std::uint64_t kRecheckNs = 10'000'000;

}  // namespace

Orders::Orders(const shm::Board& board, shm::Board* writable, shm::Slot& words,
               shm::SlotOf client) noexcept
    : board_(board),
      writable_(writable),
      client_(client),
      slot_(words),
      line_(slot_.memory),
      shared_(board.slots[static_cast<std::size_t>(client.slot)]),
      seen_(shared_.memory.wake.load()) {}

/// What a reader has obeyed is on the board only after its next report.
Order Orders::pending_order() const noexcept {
  const Order order = shm::pending_order(board_, client_);
  return order.epoch == line_.done.load() ? Order{} : order;
}

/// The functions for owners find the order in the owner's line, and that of a reader has none.
void Orders::copy_order() noexcept {
  if (writable_ != nullptr) return;
  line_.order_ns.store(shared_.memory.order_ns.load());
  line_.order.store(shared_.memory.order.load());
}

void Orders::know_orders() noexcept {
  if (line_.obedient.load() != 0) return;
  line_.obedient.store(1);
  // A launch may have found an order that did not count yet, and have cleared the bit.
  if (must_refuse()) slot_.outranked.fetch_or(shm::kOrdered);
}

bool Orders::must_refuse() const noexcept {
  return line_.obedient.load() != 0 && pending_order().refuses();
}

/// The begin of an optimizer step and the first refusal change the same word, so one of the two
/// comes first: a step that has begun ends undisturbed, and none begins on a dropped micro-batch.
bool Orders::refuse_slowly() noexcept {
  std::uint64_t state = state_.load();
  for (;;) {
    if (state == kCritical) return false;
    if (state != 0) return true;
    const Order order = pending_order();
    if (!order.refuses() || line_.obedient.load() == 0) {
      settle_ordered();
      return false;
    }
    if (state_.compare_exchange_weak(state, kRefusing | (order.epoch << kEpochShift))) {
      slot_.outranked.fetch_or(shm::kOrdered);  // settle_ordered() may just have cleared it
      obeys_.store(true);
      return true;
    }
  }
}

/// Clears the bit, reads the inputs again, and sets the bit if they ask for it.
void Orders::settle_ordered() noexcept {
  const auto wanted = [this] { return state_.load() >= kRefusing || must_refuse(); };
  if (wanted()) return;
  slot_.outranked.fetch_and(~shm::kOrdered);
  if (wanted()) slot_.outranked.fetch_or(shm::kOrdered);
}

void Orders::tick() noexcept {
  if (writable_ != nullptr) {
    shm::BoardView view(*writable_);
    shm::tend_draining(view, client_.slot);
  }
  if ((slot_.outranked.load() & shm::kOrdered) != 0) settle_ordered();
}

std::uint64_t Orders::grant() noexcept {
  know_orders();
  return std::min(limit(), granted());
}

void Orders::fit(std::uint64_t base, std::uint64_t slope) noexcept {
  know_orders();
  line_.base.store(base);
  line_.slope.store(slope);
}

/// While launches are refused there is something to obey, even if the order is void by now: the
/// micro-batch has to be dropped.
std::uint64_t Orders::pending() noexcept {
  know_orders();
  const std::uint32_t news = shared_.memory.wake.load();
  Order order = pending_order();
  const std::uint64_t state = state_.load();
  if (state >= kRefusing && !order.refuses()) {
    order = {std::max(order.epoch, state >> kEpochShift), MemoryOrder::kDrop};
  }
  if (order.kind == MemoryOrder::kNone) return 0;
  seen_.store(news);
  obeys_.store(true);
  return order.pack();
}

void Orders::done(std::uint64_t order) noexcept {
  const std::uint64_t epoch = Order::unpack(order).epoch;
  obeys_.store(false);
  copy_order();
  if (shm::note_obeyed(line_, epoch) && writable_ != nullptr) {
    shm::BoardView view(*writable_);
    shm::end_draining(view, client_.slot, line_.draining.load());
  }
  std::uint64_t state = state_.load();
  while (state >= kRefusing && state >> kEpochShift <= epoch) {
    if (state_.compare_exchange_weak(state, 0)) break;
  }
  settle_ordered();
}

bool Orders::wait_resume(std::uint64_t timeout_ns) noexcept {
  know_orders();
  const std::uint64_t deadline = base::monotonic_ns() + timeout_ns;
  for (;;) {
    const std::uint32_t news = shared_.memory.wake.load();
    if (!shm::has_broker(board_, client_)) return true;
    if (pending_order().kind != MemoryOrder::kNone) return true;
    const bool sleeps = shm::last_order(board_, client_).sleeps();
    if (!sleeps && seen_.exchange(news) != news) return true;
    const std::uint64_t now = base::monotonic_ns();
    if (now >= deadline) return false;
    base::futex_wait(shared_.memory.wake, news, std::min(deadline - now, kRecheckNs));
  }
}

void Orders::critical(bool begin) noexcept {
  know_orders();
  std::uint64_t before = begin ? 0 : kCritical;
  const bool changed = state_.compare_exchange_strong(before, begin ? kCritical : 0);
  if (!changed) return;
  exceeds_.store(false);
  line_.critical.store(begin ? 1 : 0);
}

}  // namespace sluice::intercept
