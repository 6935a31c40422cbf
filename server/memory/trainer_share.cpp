#include "server/memory/trainer_share.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"

namespace sluice::server::memory {
namespace {

/// A trainer that may finish its micro-batch is held by inference meanwhile. If inference is never
/// idle, it is not held any more after this time.
constexpr std::uint64_t kHeldBackNs = 1'000'000'000;

}  // namespace

std::optional<TrainerState> TrainerShare::state() {
  const training::TrainerMemory memory = trainer_.memory();
  if (!memory.attached || memory.process != ordered_) {
    // Another one begins without an order.
    sleeps_ = false;
    shrunk_ns_ = 0;
  }
  if (!memory.attached) return std::nullopt;
  TrainerState state{memory};
  shm::MemoryOrder by{};
  state.may_shrink = trainer_.may_shrink(by);
  if (memory.slope > 0) state.floor = memory.base + memory.slope * memory.min_items;
  state.sleeps = sleeps_;
  state.shrunk_ns = shrunk_ns_;
  if (epoch_ == 0 && memory.grant < memory.held) state.keeps = memory.held - memory.grant;
  return state;
}

void TrainerShare::apply(const Decision::Grant& grant, std::uint64_t short_ns) {
  // The grant is first: an order is obeyed by coming down to it.
  trainer_.set_grant(grant.bytes);
  if (grant.order == shm::MemoryOrder::kShrink) {
    shm::MemoryOrder by = shm::MemoryOrder::kDrop;
    if (trainer_.may_shrink(by)) order(by, short_ns);
  } else if (grant.order == shm::MemoryOrder::kSleep) {
    order(shm::MemoryOrder::kSleep, short_ns);
    sleeps_ = true;
  } else if (grant.wakes) {
    trainer_.resume();
    sleeps_ = false;
  }
}

void TrainerShare::order(shm::MemoryOrder kind, std::uint64_t short_ns) {
  const training::TrainerMemory memory = trainer_.memory();
  if (epoch_ == 0) held_before_ = memory.held;  // else the order replaces one that was not obeyed
  ordered_ = memory.process;
  held_back_ = kind == shm::MemoryOrder::kShrink;
  sleeps_unfitted_ = kind == shm::MemoryOrder::kSleep && memory.base == 0;
  epoch_ = trainer_.order(kind);
  ordered_ns_ = shrunk_ns_ = base::monotonic_ns();
  if (owes_since_ns_ == 0) owes_since_ns_ = ordered_ns_;
  if (!handover_) {
    handover_.emplace();
    // Without a model that waits, training held more than its share.
    handover_->at_ns = short_ns == 0 ? ordered_ns_ : std::min(short_ns, ordered_ns_);
  }
  // A second order of the same shortage: the parts are those of the last.
  handover_->order_ns = ordered_ns_ - handover_->at_ns;
}

void TrainerShare::poll(std::uint64_t now, bool lacks) {
  if (owes_since_ns_ == 0) return;
  const training::TrainerMemory memory = trainer_.memory();
  if (epoch_ != 0 && handover_) look_for_done(memory, now);
  const std::uint64_t held = memory.held - std::min(memory.held, slack_);
  // What a trainer holds asleep is unknown before its first fit: its grant was too small then.
  if (epoch_ == 0 && (held <= memory.grant || sleeps_unfitted_)) {
    owes_since_ns_ = 0;
  } else if (now < owes_since_ns_ + wedged_ns_) {
    return;
  } else if (epoch_ != 0) {
    end("it did not give back memory in time (--wedged-s)");
  } else if (lacks) {
    // Without need a trainer may keep what its framework cannot give back.
    end("it obeyed an order, but kept the memory (--wedged-s)");
  }
}

void TrainerShare::look_for_done(const training::TrainerMemory& memory, std::uint64_t now) {
  const std::uint64_t since = now - std::min(now, ordered_ns_);
  if (memory.process != ordered_ || trainer_.wait_done(epoch_, now)) {
    obeyed(since);
  } else if (held_back_ && since >= kHeldBackNs) {
    held_back_ = false;
    trainer_.let_run();
  }
}

/// `since`: ns since the order, until this thread saw that it has been obeyed.
void TrainerShare::obeyed(std::uint64_t since) {
  const std::uint64_t held = trainer_.memory().held;
  handover_->bytes += held_before_ - std::min(held_before_, held);
  handover_->obey = trainer_.parts();
  shm::ObeyParts& parts = handover_->obey;
  const bool apart = parts.drain_ns + parts.give_ns > 0;
  if (!apart) parts.drop_ns = since;
  parts.give_ns = since - std::min(since, parts.drop_ns + parts.drain_ns);
  epoch_ = 0;
}

void TrainerShare::end(const char* why) {
  if (handover_) handover_->obeyed = false;
  epoch_ = 0;
  owes_since_ns_ = 0;
  trainer_.end(why);
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
