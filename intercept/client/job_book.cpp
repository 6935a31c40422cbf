#include "intercept/client/job_book.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "intercept/jobs/before_job.hpp"

namespace sluice::intercept {
namespace {

/// The interval at which the slack is written while a job is near. Real ns.
constexpr std::uint64_t kAnnounceStepNs = 50'000;
/// The interval at which the announcing thread looks when no job is near.
constexpr std::uint64_t kAnnounceIdleNs = 1'000'000'000;
/// The slack is written from this much GPU time before the gates close, so launches of up to this
/// duration wait in time.
constexpr std::uint64_t kSlackNs = 2'000'000;

/// Does what is due for the client's predicted job. Returns when to look again, CLOCK_MONOTONIC ns.
std::uint64_t act_on_prediction(Client& client) {
  const std::uint64_t now = base::monotonic_ns();
  const std::uint64_t lead = lead_if_wanted(client);
  const auto ahead = client.jobs().look_ahead(now, lead);
  if (!ahead) {
    client.end_predicted_slack();
    return now + kAnnounceIdleNs;
  }
  const std::uint64_t start = ahead->expected.start_ns;
  const std::uint64_t slack_from = start - lead - client.to_real_ns(kSlackNs);
  if (now < slack_from) {
    client.end_predicted_slack();
    return std::min(slack_from, now + kAnnounceIdleNs);
  }
  if (!ahead->closed) {
    client.tell_predicted_slack(start, ahead->expected.lapse_ns);
  } else {
    client.end_predicted_slack();  // work behind a slack wait goes on to its gate wait
    if (now + client.to_real_ns(switch_ns(client)) >= start) client.switch_early();
  }
  return now + kAnnounceStepNs;
}

}  // namespace

std::uint64_t JobBook::begin(std::uint64_t announced) {
  const std::lock_guard lock(mutex_);
  call_off_late();  // clients below may have waived a late job
  const Taken taken = take(announced);
  const std::uint64_t job = taken == Taken::kUnknown ? last_job_ + 1 : announced;
  const bool opens = open_.empty();
  open_.insert(job);  // no effect for an announced job whose gates are closed already
  last_job_ = std::max(last_job_, job);
  clients_.for_each([opens, taken](Client& client) {
    opens ? client.jobs().begin() : client.jobs().announced_begins();
    if (taken == Taken::kBeforeClose) client.jobs().close_now();  // it came early
  });
  if (taken != Taken::kUnknown) end_slack();
  return job;
}

void JobBook::end(std::uint64_t job) {
  const std::lock_guard lock(mutex_);
  close(job);
  say_if_none_has_begun();
}

void JobBook::close(std::uint64_t job) noexcept {
  if (open_.erase(job) == 0 || !open_.empty()) return;
  clients_.for_each([](Client& client) { client.jobs().end(); });
}

std::uint64_t JobBook::announce(std::uint64_t start_ns) {
  const std::lock_guard lock(mutex_);
  if (announced_.size() >= kMostAnnounced) return 0;
  announced_.push_back({last_job_ + 1, start_ns});
  if (!announcer_.wake()) {
    announced_.pop_back();
    return 0;
  }
  return ++last_job_;
}

void JobBook::cancel(std::uint64_t announced) {
  const std::lock_guard lock(mutex_);
  if (take(announced) == Taken::kClosed) close(announced);
  say_if_none_has_begun();
  end_slack();
}

JobBook::Taken JobBook::take(std::uint64_t job) noexcept {
  const auto found = std::find_if(announced_.begin(), announced_.end(),
                                  [job](const Announced& each) { return each.job == job; });
  if (job == 0 || found == announced_.end()) return Taken::kUnknown;
  const bool closed = found->closed;
  announced_.erase(found);
  return closed ? Taken::kClosed : Taken::kBeforeClose;
}

void JobBook::adopt(Client& client) noexcept {
  if (!open_.empty()) client.jobs().begin();
}

/// Makes the slack of the clients below unlimited, unless another announced job is near.
void JobBook::end_slack() noexcept {
  const std::uint64_t now = base::monotonic_ns();
  const auto needs_it = [now](const Announced& each) {
    return !each.closed && each.start_ns <= now + kNearNs;
  };
  if (std::any_of(announced_.begin(), announced_.end(), needs_it)) return;
  clients_.for_each([](Client& client) { tell_no_job(client); });
}

void JobBook::lapse() noexcept {
  const std::lock_guard lock(mutex_);
  call_off_late();
}

void JobBook::call_off_late() noexcept {
  if (announced_.empty()) return;
  const std::uint64_t now = base::monotonic_ns();
  const auto lapses = [&](const Announced& each) {
    const bool over = now > each.start_ns && now - each.start_ns > kLapseNs;
    if (over && each.closed) close(each.job);
    return over;
  };
  if (std::erase_if(announced_, lapses) == 0) return;
  say_if_none_has_begun();
  end_slack();
}

/// While the gates are closed only for jobs that have not begun, tells the clients below until
/// when. So they need not rely on this process to open the gates.
void JobBook::say_if_none_has_begun() noexcept {
  std::size_t closed = 0;
  std::uint64_t until_ns = 0;
  for (const Announced& each : announced_) {
    if (!each.closed || !open_.contains(each.job)) continue;
    ++closed;
    until_ns = std::max(until_ns, each.start_ns + kLapseNs);
  }
  if (closed == 0 || closed != open_.size()) return;
  clients_.for_each([=](Client& client) { client.jobs().none_has_begun(until_ns); });
}

void JobBook::close_gates_for(Announced& announced) {
  open_.insert(announced.job);
  announced.closed = true;
  if (open_.size() != 1) {
    clients_.for_each([](Client& client) { client.jobs().close_now(); });
    return;
  }
  const std::uint64_t until_ns = announced.start_ns + kLapseNs;
  clients_.for_each([=](Client& client) { client.jobs().hold_for_announced(until_ns); });
}

/// The switch comes only after the launches that passed the gates have ended: a switch in the
/// middle of them would delay them by two switches.
JobBook::Next JobBook::step_announced() {
  const std::lock_guard lock(mutex_);
  call_off_late();
  const std::uint64_t now = base::monotonic_ns();
  std::uint64_t lead = 0;
  std::uint64_t longest_switch = 0;
  bool anyone_below = false;
  bool all_begin_open = true;
  clients_.for_each([&](Client& client) {
    all_begin_open = all_begin_open && client.jobs().may_begin_open();
    anyone_below = anyone_below || has_lower_clients(client);
    lead = std::max(lead, lead_of(client));
    longest_switch = std::max(longest_switch, client.to_real_ns(switch_ns(client)));
  });
  constexpr std::uint64_t kNever = ~std::uint64_t{0};
  // Jobs that begin with open gates need nothing before they begin.
  if (all_begin_open) return {announced_.empty() ? kNever : now + kNearNs, false};
  Next next{kNever, false};
  bool closed_one = false;
  std::uint64_t start_ns = kNever;  // the next start for which the gates are still open
  for (Announced& each : announced_) {
    if (!each.closed && now + lead >= each.start_ns) {
      close_gates_for(each);
      closed_one = true;
    }
    if (!each.closed) start_ns = std::min(start_ns, each.start_ns);
    if (each.closed) next.look_ns = now + kAnnounceStepNs;
    next.switch_now = next.switch_now || now + longest_switch >= each.start_ns;
  }
  if (closed_one) say_if_none_has_begun();
  const std::uint64_t near_ns = anyone_below ? kNearNs : lead;
  if (start_ns - now <= near_ns) {
    next.look_ns = now + kAnnounceStepNs;
    clients_.for_each(
        [start_ns](Client& client) { tell_slack(client, start_ns, start_ns + kLapseNs); });
    return next;
  }
  if (start_ns != kNever) next.look_ns = std::min(next.look_ns, start_ns - near_ns);
  if (closed_one) end_slack();  // work behind a slack wait goes on to its gate wait
  return next;
}

JobBook* JobBooks::of(CUdevice device) {
  if (device < 0 || device >= Clients::kMost) return nullptr;
  auto& book = of_devices_[static_cast<std::size_t>(device)];
  if (JobBook* const made = book.load()) return made;
  const std::lock_guard lock(making_);
  if (book.load() == nullptr) {
    const auto first = (static_cast<std::uint64_t>(device) + 1) << kDeviceShift | 1U;
    book.store(std::make_unique<JobBook>(clients_, announcer_, device, first).release());
  }
  return book.load();
}

JobBook* JobBooks::known(std::uint64_t device) noexcept {
  return device < of_devices_.size() ? of_devices_[device].load() : nullptr;
}

JobBook* JobBooks::book_of(std::uint64_t job) noexcept {
  const std::uint64_t device = job >> kDeviceShift;
  return device == 0 ? &all_ : known(device - 1);
}

void JobBooks::end(std::uint64_t job) {
  if (JobBook* const book = book_of(job)) book->end(job);
}

void JobBooks::cancel(std::uint64_t announced) {
  if (JobBook* const book = book_of(announced)) book->cancel(announced);
}

void JobBooks::add(std::unique_ptr<Client> client) {
  const std::lock_guard no_new_book(making_);
  const auto whole = all_.lock();
  all_.adopt(*client);
  JobBook* const own = known(static_cast<std::uint64_t>(client->device()));
  std::unique_lock<std::mutex> its;
  if (own != nullptr) {
    its = own->lock();
    own->adopt(*client);
  }
  clients_.add(std::move(client));
}

void JobBooks::lapse() noexcept {
  for_each([](JobBook& book) { book.lapse(); });
}

Worker::Sleep JobBooks::step() {
  if (g_process.leaving.load()) return {kAnnounceIdleNs, true};
  std::uint64_t look_ns = base::monotonic_ns() + kAnnounceIdleNs;
  clients_.for_each([&](Client& client) {
    look_ns = std::min(
        {look_ns, act_on_prediction(client), client.jobs().look_at_target(base::monotonic_ns())});
  });
  for_each([&](JobBook& book) {
    const JobBook::Next next = book.step_announced();
    if (next.switch_now) book.switch_early();
    look_ns = std::min(look_ns, next.look_ns);
  });
  const std::uint64_t now = base::monotonic_ns();
  return {look_ns > now ? look_ns - now : 0, true};
}

}  // namespace sluice::intercept
