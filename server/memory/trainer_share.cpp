#include "server/memory/trainer_share.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"

namespace sluice::server::memory {

std::optional<TrainerState> TrainerShare::state() {
  const training::TrainerMemory memory = trainer_.memory();
  if (!memory.attached) {
    // The next one begins without an order.
    sleeps_ = false;
    shrunk_ns_ = 0;
    return std::nullopt;
  }
  TrainerState state;
  training::Order by{};
  state.may_shrink = trainer_.may_shrink(by);
  state.obeys = memory.obeys;
  state.held = memory.held;
  state.grant = memory.grant;
  state.asleep = memory.base;
  state.step = memory.slope;
  if (memory.slope > 0) state.floor = memory.base + memory.slope * memory.min_items;
  state.sleeps = sleeps_;
  state.shrunk_ns = shrunk_ns_;
  return state;
}

void TrainerShare::apply(const Decision::Grant& grant, std::uint64_t short_ns) {
  using Order = Decision::Order;
  // The grant is first: an order is obeyed by coming down to it.
  trainer_.set_grant(grant.bytes);
  if (grant.order == Order::kShrink) {
    training::Order by = training::Order::kDrop;
    if (trainer_.may_shrink(by)) order(by, short_ns);
  } else if (grant.order == Order::kSleep) {
    order(training::Order::kSleep, short_ns);
    sleeps_ = true;
  } else if (grant.order == Order::kResume) {
    trainer_.resume();
    sleeps_ = false;
  }
}

void TrainerShare::order(training::Order kind, std::uint64_t short_ns) {
  held_before_ = trainer_.memory().held;
  epoch_ = trainer_.order(kind);
  ordered_ns_ = shrunk_ns_ = base::monotonic_ns();
  if (handover_) return;  // a second order of the same shortage
  handover_.emplace();
  // Without a model that waits, training held more than its share.
  handover_->at_ns = short_ns == 0 ? ordered_ns_ : std::min(short_ns, ordered_ns_);
  handover_->order_ns = ordered_ns_ - handover_->at_ns;
}

void TrainerShare::poll(std::uint64_t now) {
  if (epoch_ == 0 || !handover_) return;
  const training::TrainerMemory memory = trainer_.memory();
  const std::uint64_t since = now - ordered_ns_;
  if (memory.held < held_before_ && handover_->drop_ns == 0) handover_->drop_ns = since;
  if (trainer_.wait_done(epoch_, now)) {
    if (handover_->drop_ns == 0) handover_->drop_ns = since;
    handover_->give_ns = since - handover_->drop_ns;
    handover_->bytes = held_before_ - std::min(held_before_, trainer_.memory().held);
    epoch_ = 0;
  } else if (since >= wedged_ns_) {
    handover_->obeyed = false;
    epoch_ = 0;
    trainer_.end("it did not give back memory in time (--wedged-s)");
  }
}

void TrainerShare::taken(std::uint64_t took_ns) {
  if (handover_) handover_->take_ns += took_ns;
}

void TrainerShare::loaded(std::uint64_t took_ns) {
  if (handover_) handover_->load_ns = std::max(handover_->load_ns, took_ns);
}

void TrainerShare::settled() {
  if (handover_ && epoch_ == 0) report_(*std::exchange(handover_, std::nullopt));
}

}  // namespace sluice::server::memory
