#include "controller/ledger.hpp"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

namespace sluice::controller {
namespace {

using shm::ClientSnapshot;
using shm::Gain;
using shm::Snapshot;

constexpr double kLeastBinNs = 10'000;
constexpr double kStep = 1.02;
constexpr std::size_t kBins = 1000;  ///< The last one begins at 4,000 s.

bool lives(const ClientSnapshot& client) { return client.state == shm::SlotState::kLive; }

bool is_critical_on(const ClientSnapshot& client, int device) {
  return lives(client) && client.device == device && client.priority > 0;
}

const ClientSnapshot* find(const Snapshot& in, const ClientSnapshot& client) {
  const auto found = std::find_if(in.clients.begin(), in.clients.end(), [&](const auto& other) {
    return shm::same_client(other, client);
  });
  return found == in.clients.end() ? nullptr : &*found;
}

std::uint64_t part(std::uint64_t whole, std::uint64_t of, std::uint64_t all) {
  if (all == 0) return 0;
  return static_cast<std::uint64_t>(static_cast<double>(whole) * static_cast<double>(of) /
                                    static_cast<double>(all));
}

/// Of a GPU whose use is known for less than nine tenths of the time, nothing is said.
bool nearly_all(std::uint64_t known_ns, std::uint64_t of_ns) { return known_ns >= of_ns / 10 * 9; }

void add_device(Gain& gain, const DeviceUse& use) {
  const std::uint64_t learned_ns = use.critical.ns + use.best_effort.ns;
  const bool measured = use.seen_ns != 0 && nearly_all(use.seen_ns, use.shared_ns);
  const std::uint64_t known_ns = use.shared_ns - std::min(use.unknown_ns, use.shared_ns);
  const bool split = nearly_all(known_ns, use.shared_ns);
  gain.shared_ns += use.shared_ns;
  gain.measured = gain.measured && measured;
  if (!split) gain.best_effort_ns = Gain::kUnknown;
  if (!measured && !split) return;
  // Kernels that run at the same time count in full each, so the sum may exceed the time.
  const std::uint64_t busy_ns =
      measured ? part(use.shared_ns, use.busy_ns, use.seen_ns)
               : std::min(part(use.shared_ns, learned_ns, known_ns), use.shared_ns);
  gain.busy_ns += busy_ns;
  if (gain.best_effort_ns == Gain::kUnknown) return;
  const std::uint64_t best_effort_ns = part(busy_ns, use.best_effort.ns, learned_ns);
  gain.best_effort_ns += best_effort_ns;
  gain.idle_before_ns += part(best_effort_ns, use.idle_before_ns, use.best_effort.ns);
}

/// How long jobs of the client have run, with the job that runs.
std::uint64_t in_jobs_ns(const ClientSnapshot& client) {
  return client.jobs_total_ns + client.active_ns;
}

std::uint64_t grown(std::uint64_t now, std::uint64_t then) { return now - std::min(now, then); }

}  // namespace

void DurationBins::add(std::uint64_t ns) {
  bins_.resize(kBins);
  const double bin =
      std::log(std::max(static_cast<double>(ns), kLeastBinNs) / kLeastBinNs) / std::log(kStep);
  ++bins_[std::min(static_cast<std::size_t>(bin), kBins - 1)];
  ++count_;
}

void DurationBins::add(const DurationBins& other) {
  if (other.count_ == 0) return;
  bins_.resize(kBins);
  for (std::size_t i = 0; i < kBins; ++i) bins_[i] += other.bins_[i];
  count_ += other.count_;
}

std::optional<std::uint64_t> DurationBins::p99_ns() const {
  if (count_ < kLeast) return std::nullopt;
  const std::uint64_t rank = (count_ * 99 + 99) / 100;
  std::size_t bin = 0;
  for (std::uint64_t below = bins_[0]; below < rank; below += bins_[bin]) ++bin;
  return static_cast<std::uint64_t>(kLeastBinNs * std::pow(kStep, static_cast<double>(bin) + 0.5));
}

void DeviceUse::add(const DeviceUse& other) noexcept {
  shared_ns += other.shared_ns;
  critical.ns += other.critical.ns;
  critical.unknown_ns += other.critical.unknown_ns;
  best_effort.ns += other.best_effort.ns;
  best_effort.unknown_ns += other.best_effort.unknown_ns;
  unknown_ns += other.unknown_ns;
  idle_before_ns += other.idle_before_ns;
  seen_ns += other.seen_ns;
  busy_ns += other.busy_ns;
}

void JobUse::add(const JobUse& other) {
  alone.add(other.alone);
  mixed.add(other.mixed);
  of_target += other.of_target;
  kept += other.kept;
}

Ledger::Ledger(const Gain& before) {
  if (before.since_ns == 0 || before.best_effort_ns == Gain::kUnknown) return;
  earlier_.since_ns = before.since_ns;
  const std::uint64_t best_effort_ns = std::min(before.best_effort_ns, before.busy_ns);
  earlier_.devices[kBefore] = {.shared_ns = before.shared_ns,
                               .critical = {.ns = before.busy_ns - best_effort_ns},
                               .best_effort = {.ns = best_effort_ns},
                               .idle_before_ns = std::min(before.idle_before_ns, best_effort_ns)};
}

void Ledger::look(Snapshot now, const std::map<int, double>& busy) {
  if (period_.since_ns == 0) period_.since_ns = now.taken_ns;
  // Also what an earlier controller had, or a fault on the board: a time to come.
  if (now.taken_ns - earlier_.since_ns > 2 * kPeriodNs) earlier_ = {};
  if (now.taken_ns >= period_.since_ns + kPeriodNs) {
    earlier_ = std::exchange(period_, {.since_ns = now.taken_ns});
  }
  std::set<int> slots;
  for (const ClientSnapshot& client : now.clients) {
    if (!lives(client) || client.priority == 0) continue;
    slots.insert(client.slot);
    count_jobs(now, client);
  }
  const auto gone = [&](const auto& entry) { return !slots.contains(entry.first); };
  std::erase_if(period_.jobs, gone);
  std::erase_if(earlier_.jobs, gone);
  std::erase_if(quiet_since_ns_, gone);
  std::erase_if(closed_p99_ns_, gone);
  for (const shm::DeviceSnapshot& device : now.devices) {
    const auto known = busy.find(device.index);
    count_device(now, device.index,
                 known == busy.end() ? std::nullopt : std::optional(known->second));
  }
  before_ = std::move(now);
}

const ClientSnapshot* Ledger::earlier(const ClientSnapshot& client) const {
  return before_ ? find(*before_, client) : nullptr;
}

void Ledger::count_device(const Snapshot& now, int device, std::optional<double> busy) {
  const auto critical = [&](const ClientSnapshot& client) {
    return is_critical_on(client, device) && earlier(client) != nullptr;
  };
  if (std::none_of(now.clients.begin(), now.clients.end(), critical)) return;
  DeviceUse use;
  use.shared_ns = now.taken_ns - before_->taken_ns;
  use.critical = part_of(now, device, true);
  use.best_effort = part_of(now, device, false);
  use.unknown_ns = std::max(use.critical.unknown_ns, use.best_effort.unknown_ns);
  use.idle_before_ns =
      std::min(use.best_effort.ns, use.shared_ns - std::min(use.shared_ns, wanted_ns(now, device)));
  if (busy) {
    use.seen_ns = use.shared_ns;
    use.busy_ns = part(use.shared_ns, static_cast<std::uint64_t>(*busy * 1000), 1000);
  }
  devices_[device].add(use);
  period_.devices[device].add(use);
}

/// GPU time since the look before. A mean of samples that were taken next to other work has time
/// slices of others in it, and may be several times too high. So if more than a fifth of the time
/// comes from such means, it is not known.
DeviceUse::Part Ledger::part_of(const Snapshot& now, int device, bool critical) const {
  const std::uint64_t span_ns = now.taken_ns - before_->taken_ns;
  std::uint64_t used_ns = 0;
  std::uint64_t bound_ns = 0;
  bool unknown = false;
  for (const ClientSnapshot& client : now.clients) {
    if (client.device != device || (client.priority > 0) != critical) continue;
    const ClientSnapshot* then = earlier(client);
    // Whatever a client says, it has not had more of the GPU than the time that has passed.
    used_ns += std::min(grown(client.gpu_ns, then == nullptr ? 0 : then->gpu_ns), span_ns);
    bound_ns +=
        std::min(grown(client.gpu_bound_ns, then == nullptr ? 0 : then->gpu_bound_ns), span_ns);
    unknown = unknown || (client.gpu_ns == 0 && works(client));
  }
  if (unknown || bound_ns > used_ns / 5) return {0, span_ns};
  return {used_ns, 0};
}

/// For how long the GPU was wanted by critical clients since the look before, at most: in their
/// jobs, of which a program that is never idle has one without an end. A job that is bound by its
/// host leaves the GPU idle for a part of the time.
std::uint64_t Ledger::wanted_ns(const Snapshot& now, int device) const {
  const std::uint64_t span_ns = now.taken_ns - before_->taken_ns;
  std::uint64_t wanted_ns = 0;
  for (const ClientSnapshot& client : now.clients) {
    const ClientSnapshot* then = earlier(client);
    if (!is_critical_on(client, device) || then == nullptr) continue;
    const std::uint64_t jobs_ns = std::min(grown(in_jobs_ns(client), in_jobs_ns(*then)), span_ns);
    wanted_ns += client.gpu_share == 0 ? jobs_ns : part(jobs_ns, client.gpu_share, 1000);
  }
  return wanted_ns;
}

/// Whether it has given the GPU work since the look before, or had work that was held.
bool Ledger::works(const ClientSnapshot& client) const {
  const ClientSnapshot* then = earlier(client);
  return then == nullptr || client.launches != then->launches || client.gpu_ns != then->gpu_ns ||
         client.held_total_ns != then->held_total_ns || !client.holders.empty();
}

bool Ledger::any_below_works(const Snapshot& now, const ClientSnapshot& client) const {
  const auto below = [&](const ClientSnapshot& other) {
    return lives(other) && other.device == client.device && other.priority < client.priority;
  };
  const auto ended = [&](const ClientSnapshot& other) {
    return below(other) && find(now, other) == nullptr;
  };
  return std::any_of(now.clients.begin(), now.clients.end(),
                     [&](const auto& other) { return below(other) && works(other); }) ||
         std::any_of(before_->clients.begin(), before_->clients.end(), ended);
}

void Ledger::count_jobs(const Snapshot& now, const ClientSnapshot& client) {
  const ClientSnapshot* then = earlier(client);
  if (then == nullptr) {  // another client may have had the slot
    period_.jobs.erase(client.slot);
    earlier_.jobs.erase(client.slot);
    quiet_since_ns_[client.slot] = now.taken_ns;
    closed_p99_ns_.erase(client.slot);
    return;
  }
  // Work that was given earlier may run a little longer: a look is left out.
  const std::uint64_t span_ns = now.taken_ns - before_->taken_ns;
  std::uint64_t& quiet_ns = quiet_since_ns_[client.slot];
  if (any_below_works(now, client)) quiet_ns = now.taken_ns + span_ns;
  JobUse& use = period_.jobs[client.slot];
  const std::uint64_t ended = client.jobs_ended - std::min(client.jobs_ended, then->jobs_ended);
  const std::uint64_t loaded = client.jobs_ended - std::min(client.jobs_ended, kFirstJobs);
  const auto kept = std::min({client.recent_jobs_ns.size(), ended, loaded});
  for (auto job = client.recent_jobs_ns.end() - static_cast<std::ptrdiff_t>(kept);
       job != client.recent_jobs_ns.end(); ++job) {
    (before_->taken_ns >= quiet_ns + *job ? use.alone : use.mixed).add(*job);
  }
  if (!client.target.text.starts_with("p99=")) {
    closed_p99_ns_.erase(client.slot);
  } else if (client.target.alone_ns != 0) {
    closed_p99_ns_[client.slot] = client.target.alone_ns;
  }
  use.of_target += grown(client.target.all_jobs, then->target.all_jobs);
  use.kept += grown(client.target.all_kept, then->target.all_kept);
}

/// The time alone: of jobs that were, else as a target's law has learned it.
std::uint64_t Ledger::alone_ns(int slot, const JobUse& use) const {
  if (const auto seen = use.alone.p99_ns()) return *seen;
  const auto closed = closed_p99_ns_.find(slot);
  return closed == closed_p99_ns_.end() ? 0 : closed->second;
}

std::map<int, JobUse> Ledger::jobs() const {
  std::map<int, JobUse> all = earlier_.jobs;
  for (const auto& [slot, use] : period_.jobs) all[slot].add(use);
  return all;
}

Gain Ledger::gain() const {
  Gain gain;
  if (!before_) return gain;
  gain.since_ns = earlier_.since_ns != 0 ? earlier_.since_ns : period_.since_ns;
  std::map<int, DeviceUse> devices = earlier_.devices;
  for (const auto& [device, use] : period_.devices) devices[device].add(use);
  gain.measured = !devices.empty();
  gain.best_effort_ns = 0;
  for (const auto& [device, use] : devices) add_device(gain, use);
  JobUse targets;
  for (const auto& [slot, use] : jobs()) {
    targets.of_target += use.of_target;
    targets.kept += use.kept;
    const auto p99_ns = use.mixed.p99_ns();
    if (!p99_ns) continue;
    gain.p99_ns = std::max(gain.p99_ns, *p99_ns);
    const auto percent = static_cast<std::uint32_t>(part(100, *p99_ns, alone_ns(slot, use)));
    gain.percent_of_alone = std::max(gain.percent_of_alone, percent);
  }
  if (targets.of_target != 0) {
    gain.jobs_kept = 1 + static_cast<std::uint32_t>(part(10'000, targets.kept, targets.of_target));
  }
  return gain;
}

}  // namespace sluice::controller
