#include "intercept/jobs/announcements.hpp"

#include <sys/prctl.h>

#include <algorithm>

#include "base/clock.hpp"
#include "intercept/client/interposer.hpp"
#include "intercept/client/quiet_thread.hpp"
#include "shm/gates.hpp"

namespace sluice::intercept {
namespace {

/// What a launch takes to reach the GPU,
constexpr std::uint64_t kLaunchNs = 50'000;
/// and a context switch where clients take turns (measured on one H200, driver 580: 0.11-0.13 ms).
constexpr std::uint64_t kSwitchNs = 150'000;
/// Before the start, under policies that do not say how much may be in front of a job.
constexpr std::uint64_t kUnboundedNs = 1'000'000;

bool is_below(const shm::Slot& self, const shm::Slot& other) noexcept {
  const auto mine = shm::SlotInfo::unpack(self.info.load());
  const auto theirs = shm::SlotInfo::unpack(other.info.load());
  return theirs.state == shm::SlotState::kLive && theirs.device == mine.device &&
         theirs.priority < mine.priority;
}

template <class Visit>
void for_each_below(const Client& client, Visit visit) noexcept {
  shm::Board& board = client.seat().board;
  shm::for_each_other(board.used.load(), client.seat().slot, [&](int index) {
    shm::Slot& other = board.slots[static_cast<std::size_t>(index)];
    if (is_below(client.slot(), other)) visit(other);
  });
}

template <class Which>
bool has_below(const Client& client, Which which) noexcept {
  bool has = false;
  for_each_below(client, [&](const shm::Slot& below) { has = has || which(below); });
  return has;
}

}  // namespace

Announcements::Taken Announcements::take(std::uint64_t job) noexcept {
  const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                  [job](const Announcement& notice) { return notice.job == job; });
  if (job == 0 || found == waiting_.end()) return Taken::kUnknown;
  const bool closed = found->closed;
  waiting_.erase(found);
  return closed ? Taken::kClosed : Taken::kBeforeClose;
}

std::uint64_t handover_ns(const Client& client) noexcept {
  return client.under_mps() ? kLaunchNs : kLaunchNs + kSwitchNs;
}

/// How long before the start the gates must close, real ns: what may then still run, and a switch.
std::uint64_t lead_of(const Client& client) noexcept {
  std::uint64_t lead = 0;
  for_each_below(client, [&lead](const shm::Slot& below) {
    const auto policy = shm::Policy::unpack(below.policy.load());
    if (policy.kind == shm::PolicyKind::kNone) return;  // no gate holds it
    lead = std::max(lead, policy.spacing.is_time() ? policy.spacing.ns() : kUnboundedNs);
  });
  return client.to_real_ns(lead + handover_ns(client));
}

void tell_slack(const Client& client, std::uint64_t start_ns, std::uint64_t until_ns) noexcept {
  const std::uint64_t now = base::monotonic_ns();
  const std::uint64_t end_ns = start_ns - client.to_real_ns(handover_ns(client));
  for_each_below(client, [=](shm::Slot& below) {
    // That of another process may be nearer; if its room is opened, ours is told a step later.
    const std::uint64_t told_until = below.slack_until_ns.load();
    if (below.slack_ns.load() != shm::kUnlimitedSlack && now < told_until && told_until < until_ns)
      return;
    below.slack_until_ns.store(until_ns);
    below.slack_ns.store(end_ns > now ? end_ns - now : 0);
    below.announced.store(1);
  });
}

void tell_no_job(const Client& client) noexcept {
  for_each_below(client, [](shm::Slot& below) {
    below.slack_until_ns.store(0);
    below.slack_ns.store(shm::kUnlimitedSlack);
    below.announced.store(1);
  });
}

bool has_device_work_below(const Client& client) noexcept {
  return has_below(client, [](const shm::Slot& below) {
    return shm::Policy::unpack(below.policy.load()).kind == shm::PolicyKind::kDevice;
  });
}

bool Interposer::start_announcements() noexcept {
  if (announce_thread_.exchange(true)) return true;
  const bool started = start_quiet_thread("sluice-announce", [this] { keep_announcements(); });
  if (!started) announce_thread_.store(false);
  return started;
}

std::uint64_t Interposer::announce_job(std::uint64_t start_ns) noexcept {
  if (in_forked_child()) return 0;
  g_explicit_jobs.store(true);
  g_announced_jobs.store(true);
  client_of(nullptr);
  const std::lock_guard lock(jobs_mutex_);
  if (announcements_.waiting().size() >= Announcements::kMost || !start_announcements()) return 0;
  announcements_.add(++last_job_, start_ns);
  return last_job_;
}

void Interposer::cancel_job(std::uint64_t announced) noexcept {
  if (in_forked_child()) return;
  const std::lock_guard lock(jobs_mutex_);
  if (announcements_.take(announced) == Announcements::Taken::kClosed) close_job(announced);
  say_if_none_has_begun();
  end_slack();
}

/// Unless another notice still needs it.
void Interposer::end_slack() noexcept {
  const std::uint64_t now = base::monotonic_ns();
  const auto needs_it = [now](const Announcements::Announcement& notice) {
    return !notice.closed && notice.start_ns <= now + Announcements::kNearNs;
  };
  const auto& waiting = announcements_.waiting();
  if (std::any_of(waiting.begin(), waiting.end(), needs_it)) return;
  for_each_client([](Client& client) { tell_no_job(client); });
}

/// Also called by the watcher: the notice thread may be inside the driver.
void Interposer::lapse_announcements() noexcept {
  const std::lock_guard lock(jobs_mutex_);
  call_off_late();
}

void Interposer::call_off_late() noexcept {
  if (announcements_.waiting().empty()) return;
  const std::uint64_t now = base::monotonic_ns();
  const auto lapses = [&](const Announcements::Announcement& notice) {
    const bool over = now > notice.start_ns && now - notice.start_ns > Announcements::kLapseNs;
    if (over && notice.closed) close_job(notice.job);
    return over;
  };
  if (std::erase_if(announcements_.waiting(), lapses) == 0) return;
  say_if_none_has_begun();
  end_slack();
}

/// Who is held by jobs alone that have not begun need not trust that this process runs on.
void Interposer::say_if_none_has_begun() noexcept {
  std::size_t closed = 0;
  std::uint64_t until_ns = 0;
  for (const Announcements::Announcement& notice : announcements_.waiting()) {
    if (!notice.closed || !open_jobs_.contains(notice.job)) continue;
    ++closed;
    until_ns = std::max(until_ns, notice.start_ns + Announcements::kLapseNs);
  }
  if (closed == 0 || closed != open_jobs_.size()) return;
  for_each_client([=](Client& client) { client.jobs().none_has_begun(until_ns); });
}

/// Closes gates in time. Returns when to look again, and whether the GPU is to be switched to this
/// process now: what was let through before the gates closed has ended, and a switch in the middle
/// of it would make it end later by two switches.
Interposer::Next Interposer::step_announcements() noexcept {
  lapse_announcements();
  const std::lock_guard lock(jobs_mutex_);
  const std::uint64_t now = base::monotonic_ns();
  std::uint64_t lead = 0;
  std::uint64_t handover = 0;
  bool anyone_below = false;
  for_each_client([&](Client& client) {
    anyone_below = anyone_below || has_below(client, [](const shm::Slot&) { return true; });
    lead = std::max(lead, lead_of(client));
    handover = std::max(handover, client.to_real_ns(handover_ns(client)));
  });
  constexpr std::uint64_t kNever = ~std::uint64_t{0};
  Next next{kNever, false};
  bool closed_one = false;
  std::uint64_t start_ns = kNever;  // of the next whose gates are open
  for (Announcements::Announcement& notice : announcements_.waiting()) {
    if (!notice.closed && now + lead >= notice.start_ns) {
      notice.closed = closed_one = true;
      open_jobs_.insert(notice.job);
      if (open_jobs_.size() == 1) {
        const std::uint64_t until_ns = notice.start_ns + Announcements::kLapseNs;
        for_each_client([=](Client& client) { client.jobs().hold_for_announced(until_ns); });
      }
    }
    if (!notice.closed) start_ns = std::min(start_ns, notice.start_ns);
    if (notice.closed) next.look_ns = now + kAnnounceStepNs;
    next.kick = next.kick || now + handover >= notice.start_ns;
  }
  if (closed_one) say_if_none_has_begun();
  const std::uint64_t near_ns = anyone_below ? Announcements::kNearNs : lead;
  if (start_ns - now <= near_ns) {
    next.look_ns = now + kAnnounceStepNs;
    for_each_client([start_ns](Client& client) {
      tell_slack(client, start_ns, start_ns + Announcements::kLapseNs);
    });
    return next;
  }
  if (start_ns != kNever) next.look_ns = std::min(next.look_ns, start_ns - near_ns);
  if (closed_one) end_slack();  // the gates hold now; who parks behind the room is to read them
  return next;
}

void Interposer::keep_announcements() noexcept {
  prctl(PR_SET_TIMERSLACK, 1);  // ns; by default a wait of 50 us takes twice as long
  const std::atomic<std::uint32_t> never{0};
  for (;;) {
    const std::uint32_t changes = announcements_.changes().load();
    if (g_leaving.load()) {
      base::futex_wait(never, 0, kAnnounceIdleNs);
      continue;
    }
    const std::uint64_t look_ns = step_predictions();
    const Next next = step_announcements();
    if (next.kick) for_each_client([](Client& client) { client.early_switch()(); });
    const std::uint64_t now = base::monotonic_ns();
    const std::uint64_t until = std::min({look_ns, next.look_ns, now + kAnnounceIdleNs});
    if (until > now) base::futex_wait(announcements_.changes(), changes, until - now);
  }
}

}  // namespace sluice::intercept
