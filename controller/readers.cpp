#include "controller/readers.hpp"

#include "base/clock.hpp"
#include "shm/memory.hpp"
#include "shm/policy.hpp"
#include "shm/report.hpp"

namespace sluice::controller {
namespace {

using shm::SlotState;

/// Two time slices of the GPU; see Watcher::tend_slack.
constexpr std::uint64_t kLetThroughNs = 5'000'000;
/// For so long after a death, other threads of the dead process may still write.
constexpr std::uint64_t kDiesNs = 100'000'000;

void take_state(Clients& clients, int slot, SlotState wanted) {
  if (wanted == SlotState::kLeaving) {
    shm::leave(clients.view, slot);
    clients.slot(slot).slack_ns.store(shm::kUnlimitedSlack);
  } else if (wanted == SlotState::kLive) {
    shm::go_live(clients.view, slot);
  }
}

/// Threads that wait on the host cannot say so on the board, so the word says that some may.
void take_policy(Clients& clients, int slot, std::uint64_t packed) {
  shm::Slot& of = clients.slot(slot);
  const shm::Policy policy = shm::Policy::unpack(packed);
  if (policy.pack() != packed || !policy.valid()) return;
  of.waiters.store(policy.holds_on_host() ? 1 : 0);
  if (of.policy.load() == packed) return;
  clients.view.count_held(slot);
  of.policy.store(packed);
}

/// The rule of Orders::settle_ordered in intercept/, for the part of it that is on the board.
void settle_ordered(Clients& clients, int slot, bool refuses) {
  shm::Slot& of = clients.slot(slot);
  const auto wanted = [&] {
    const shm::SlotOf client{slot, clients.info(slot).generation};
    return refuses || shm::pending_order(clients.board, client).refuses();
  };
  if (wanted()) {
    of.outranked.fetch_or(shm::kOrdered);
    return;
  }
  if ((of.outranked.load() & shm::kOrdered) == 0) return;
  of.outranked.fetch_and(~shm::kOrdered);
  if (wanted()) of.outranked.fetch_or(shm::kOrdered);
}

/// Whether the jobs that somebody above announced will not begin, because he has just died.
bool one_died_above(Clients& clients, int reader, std::uint64_t now_ns) {
  const shm::SlotInfo own = clients.info(reader);
  bool died = false;
  shm::for_each_other(clients.view.used().load(), reader, [&](int slot) {
    const shm::SlotInfo info = clients.info(slot);
    died = died ||
           (info.state == SlotState::kDead && info.device == own.device &&
            info.priority > own.priority && now_ns - clients.tenant(slot).dead_since_ns <= kDiesNs);
  });
  return died;
}

/// Calls `visit(slot)` for each reader that lives or is leaving.
template <class Visit>
void for_each_reader(Clients& clients, Visit visit) {
  shm::for_each_other(clients.view.used().load(), shm::kControllerBit, [&](int slot) {
    const SlotState state = clients.info(slot).state;
    const bool runs = shm::lives(state) || state == SlotState::kLeaving;
    if (clients.is_reader(slot) && runs) visit(slot);
  });
}

}  // namespace

void take_report(Clients& clients, const shm::Report& report) {
  const int index = report.slot;
  shm::Slot& slot = clients.slot(index);
  if (!shm::lives(clients.info(index).state)) return;
  slot.watcher_beat_ns.store(base::monotonic_ns());
  slot.job.store(shm::job_after(slot.job.load(), report));
  take_policy(clients, index, report.policy);
  shm::copy_words(report, slot);
  for (int holder = 0; holder < shm::kSlots; ++holder) {
    const std::uint64_t job = report.waived[static_cast<std::size_t>(holder)];
    if (slot.waived[static_cast<std::size_t>(holder)].load() == job) continue;
    shm::waive(clients.view, index, holder, job);
  }
  if (shm::note_obeyed(slot.memory, report.done)) {
    shm::end_draining(clients.view, index, slot.memory.draining.load());
  }
  settle_ordered(clients, index, report.refuses != 0);
  take_state(clients, index, report.state);
}

void tend_readers(Clients& clients, std::uint64_t now_ns) {
  shm::tend_readers(clients.view, shm::kControllerBit);
  std::uint64_t let_through = 0;
  const std::uint64_t limit = clients.board.max_hold_ns.load();
  for_each_reader(clients, [&](int index) {
    shm::Slot& slot = clients.slot(index);
    shm::settle_outranked(clients.view, index);
    shm::tend_draining(clients.view, index);
    std::uint64_t& since = clients.tenant(index).slack_since_ns;
    if (slot.slack_ns.load() == shm::kUnlimitedSlack) {
      since = 0;
      return;
    }
    if (since == 0) since = now_ns;
    const bool outranked = (slot.outranked.load() & shm::kOutranked) != 0;
    // An announcer that saw the slot live may write after the client has left, and never looks at
    // the slot again.
    const bool obeys = clients.info(index).state == SlotState::kLive;
    if (now_ns > slot.slack_until_ns.load() || !outranked || !obeys ||
        one_died_above(clients, index, now_ns)) {
      slot.slack_ns.store(shm::kUnlimitedSlack);
    } else if (limit != 0 && now_ns - since >= limit) {
      since = now_ns;
      let_through |= shm::bit(index);
    }
  });
  // All at once, so that the loop of the service is delayed once.
  while (let_through != 0 && base::monotonic_ns() - now_ns < kLetThroughNs) {
    shm::for_each_other(let_through, shm::kControllerBit, [&](int index) {
      clients.slot(index).slack_ns.store(shm::kUnlimitedSlack);
    });
  }
}

}  // namespace sluice::controller
