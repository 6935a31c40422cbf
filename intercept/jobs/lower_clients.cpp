#include "intercept/jobs/lower_clients.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "shm/gates.hpp"

namespace sluice::intercept {
namespace {

/// The time that a launch needs to reach the GPU.
constexpr std::uint64_t kLaunchNs = 50'000;
/// A context switch where clients take turns (measured on one H200, driver 580: 0.11 to 0.13 ms).
constexpr std::uint64_t kSwitchNs = 150'000;
/// The lead for clients whose policy sets no bound in GPU time.
constexpr std::uint64_t kUnboundedNs = 1'000'000;

bool is_below(const shm::Slot& self, const shm::Slot& other) noexcept {
  const auto mine = shm::SlotInfo::unpack(self.info.load());
  const auto theirs = shm::SlotInfo::unpack(other.info.load());
  return theirs.state == shm::SlotState::kLive && theirs.device == mine.device &&
         theirs.priority < mine.priority;
}

template <class Visit>
void for_each_below(const ClientSlot& client, Visit visit) noexcept {
  shm::Board& board = client.seat().board;
  shm::for_each_other(board.used.load(), client.seat().slot, [&](int index) {
    shm::Slot& other = board.slots[static_cast<std::size_t>(index)];
    if (is_below(client.slot(), other)) visit(other);
  });
}

}  // namespace

std::uint64_t handover_ns(const ClientSlot& client) noexcept {
  return client.under_mps() ? kLaunchNs : kLaunchNs + kSwitchNs;
}

std::uint64_t lead_of(const ClientSlot& client) noexcept {
  std::uint64_t lead = 0;
  for_each_below(client, [&lead](const shm::Slot& below) {
    const auto policy = shm::Policy::unpack(below.policy.load());
    if (policy.kind == shm::PolicyKind::kNone) return;  // a closed gate does not hold this client
    lead = std::max(lead, policy.spacing.is_time() ? policy.spacing.ns() : kUnboundedNs);
  });
  return client.to_real_ns(lead + handover_ns(client));
}

std::uint64_t lead_if_wanted(const ClientSlot& client) noexcept {
  bool wanted = false;
  for_each_below(client, [&wanted](const shm::Slot& below) {
    wanted |= shm::Policy::unpack(below.policy.load()).kind == shm::PolicyKind::kDevice;
  });
  return wanted ? lead_of(client) : 0;
}

bool has_lower_clients(const ClientSlot& client) noexcept {
  bool has = false;
  for_each_below(client, [&has](const shm::Slot&) { has = true; });
  return has;
}

void tell_slack(const ClientSlot& client, std::uint64_t start_ns, std::uint64_t until_ns) noexcept {
  const std::uint64_t now = base::monotonic_ns();
  const std::uint64_t end_ns = start_ns - client.to_real_ns(handover_ns(client));
  for_each_below(client, [=](shm::Slot& below) {
    // Another process may have a nearer job. When that slack is over, ours is written a step later.
    const std::uint64_t told_until = below.slack_until_ns.load();
    if (below.slack_ns.load() != shm::kUnlimitedSlack && now < told_until && told_until < until_ns)
      return;
    below.slack_until_ns.store(until_ns);
    below.slack_ns.store(end_ns > now ? end_ns - now : 0);
    below.announced.store(1);
  });
}

void tell_no_job(const ClientSlot& client) noexcept {
  for_each_below(client, [](shm::Slot& below) {
    below.slack_until_ns.store(0);
    below.slack_ns.store(shm::kUnlimitedSlack);
    below.announced.store(1);
  });
}

}  // namespace sluice::intercept
