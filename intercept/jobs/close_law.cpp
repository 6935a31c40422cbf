#include "intercept/jobs/close_law.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "intercept/jobs/least_used.hpp"

namespace sluice::intercept {
namespace {

using When = CloseLaw::Decision::When;

/// Jobs of which one is a reference.
constexpr std::uint64_t kSearchPeriod = 2;
constexpr std::uint64_t kConfirmPeriod = 4;
constexpr std::uint64_t kHoldPeriod = 16;

double sign(double value) noexcept { return value > 0 ? 1 : value < 0 ? -1 : 0; }

/// a - b, for numbers of any size.
double difference(std::uint64_t a, std::uint64_t b) noexcept {
  return static_cast<double>(a) - static_cast<double>(b);
}

}  // namespace

/// A program that makes new fingerprints for ever has its gates closed at first, and does not drive
/// out a fingerprint that it uses often.
CloseLaw::Decision CloseLaw::decide(std::uint64_t fingerprint, std::uint64_t neighbours,
                                    std::uint64_t now, bool narrow) noexcept {
  Decision decision;
  if (neighbours == 0) return decision;
  budget_.job();
  const bool is_new = !knows(fingerprint);
  Entry& entry = find_or_replace(
      entries_, [=](const Entry& each) { return each.is(fingerprint, neighbours); });
  entry.fingerprint = fingerprint;
  entry.neighbours = neighbours;
  entry.used = ++uses_;
  decision.neighbours_ = neighbours;
  decision.entry_ = static_cast<std::size_t>(&entry - entries_.data());
  if (is_new) budget_.new_kind();
  if (++entry.jobs <= kFirst) return decision;
  if (entry.trial == 0) test(entry, 0, Phase::kHold);
  choose_trial(entry, now, narrow);
  if (waits(entry)) return decision;
  if (entry.level == 0) {
    const bool full = entry.references.size() == kReferences;
    if (!full || entry.jobs % kHoldPeriod == 0) decision.role_ = Decision::Role::kFact;
    decision.trial_ = entry.trial;
    return decision;
  }
  const bool is_doubted = entry.period == kHoldPeriod && !rests(entry);
  if (entry.place == entry.period || is_doubted) begin_group(entry);
  decision.trial_ = entry.trial;
  const std::uint64_t place = entry.place++;
  if (place == entry.reference_place) {
    decision.role_ = Decision::Role::kReference;
    return decision;
  }
  if (place == entry.compared_place) decision.role_ = Decision::Role::kTrial;
  if (entry.phase == Phase::kTry) pay(entry, 1);
  decision.latest_ns = std::max(2 * entry.facts.duration_ns, kShortestLatestNs);
  if (entry.level == kNeverLevel) {
    decision.when = When::kNever;
  } else if (entry.level == kWaitLevel) {
    decision.when = When::kAtWait;
  } else {
    decision.ns = entry.facts.duration_ns / kWaitLevel * entry.level;
    decision.when = When::kAfterTime;
  }
  if (decision.when == When::kAfterTime && entry.facts.launches >= kFewLaunches) {
    decision.when = When::kAfterLaunches;
    decision.launches = entry.facts.launches / kWaitLevel * entry.level +
                        entry.facts.launches % kWaitLevel * entry.level / kWaitLevel;
  }
  return decision;
}

/// At rest, it may be time to try something that was not harmless before.
void CloseLaw::choose_trial(Entry& entry, std::uint64_t now, bool narrow) noexcept {
  if (entry.phase != Phase::kHold || entry.references.size() < kEnough) return;
  // A trial would harm, and gain next to nothing.
  if (entry.facts.keeps_gpu_busy && !narrow && entry.jobs < kFirstPause) {
    entry.confirmed = true;
    return;
  }
  const bool never_is_due = !entry.tried_never_ns || now - *entry.tried_never_ns >= kNeverPeriodNs;
  const bool next_is_due = entry.level < kWaitLevel && entry.jobs >= entry.retry_at;
  if (!never_is_due && !next_is_due) return;
  if (!budget_.may_begin()) {
    entry.confirmed = true;
  } else if (entry.level != kNeverLevel && never_is_due) {
    entry.tried_never_ns = now;
    test(entry, kNeverLevel, Phase::kTry);
  } else if (next_is_due) {
    test(entry, entry.level + 1, Phase::kTry);
  }
}

/// Begins to collect evidence anew. Jobs that run now are not of this trial.
void CloseLaw::test(Entry& entry, unsigned level, Phase phase) noexcept {
  entry.level = level;
  entry.phase = phase;
  entry.bets = {};
  entry.suspicion = {};
  entry.pairs = 0;
  entry.paid = 0;
  entry.costs.clear();
  entry.trial = ++trials_;
  entry.place = entry.period = 0;
}

/// A group has one pair of neighbouring jobs, in random order. The tail of a level that is harmless
/// at the median takes hundreds of pairs: best effort need not wait for them, unless there is
/// doubt.
void CloseLaw::begin_group(Entry& entry) noexcept {
  if (entry.reference) remember(entry, *entry.reference);
  entry.reference.reset();
  entry.compared.reset();
  entry.trial = ++trials_;
  entry.place = 0;
  const bool goes_well =
      entry.phase == Phase::kConfirm && entry.bets.harmful() < kDoubt && entry.pairs < kMostPairs;
  entry.period = rests(entry) ? kHoldPeriod : goes_well ? kConfirmPeriod : kSearchPeriod;
  const std::uint64_t drawn = draw_.next();
  const std::uint64_t first = (drawn >> 1U) % (entry.period - 1);
  entry.reference_place = first + drawn % 2;
  entry.compared_place = first + 1 - drawn % 2;
}

bool CloseLaw::rests(const Entry& entry) noexcept {
  return entry.phase == Phase::kHold && entry.bets.harmful() < kSuspicion &&
         std::max(entry.bets.grew_harmful.wealth(), entry.suspicion.wealth()) < kJobSuspicion;
}

void CloseLaw::ended(const Decision& decision, const Job& job) noexcept {
  Entry& entry = entries_[decision.entry_];
  const bool shows_cost = job.neighbour_busy && job.neighbours == entry.neighbours;
  const bool closed_at_first = job.closed_ns == 0;
  if (decision.neighbours_ == entry.neighbours) {
    charge(entry, decision, job);
    const bool closed_late = decision.when != When::kFirst && !closed_at_first;
    if (closed_late && shows_cost) suspect(entry, job);
  }
  if (decision.role_ == Decision::Role::kNone || decision.trial_ != entry.trial) return;
  const Sample sample{job.waited_ns, job.duration_ns, job.launches};
  if (decision.role_ == Decision::Role::kTrial) {
    const bool harmless = !job.neighbour_busy || closed_at_first;
    if (harmless && entry.phase == Phase::kTry) pay(entry, -1);
    if (!shows_cost || closed_at_first) return;
    entry.compared = sample;
  } else if (!closed_at_first) {
    return;
  } else if (decision.role_ == Decision::Role::kFact || !shows_cost) {
    remember(entry, sample);
  } else {
    entry.reference = sample;
  }
  if (!entry.reference || !entry.compared) return;
  compare(entry);
  remember(entry, *entry.reference);
  entry.reference.reset();
  entry.compared.reset();
  conclude(entry);
}

void CloseLaw::remember(Entry& entry, const Sample& reference) noexcept {
  entry.references.add(reference);
  LastValues<std::uint64_t, kReferences> launches;
  LastValues<std::uint64_t, kReferences> durations;
  LastValues<std::uint64_t, kReferences> waits;
  for (const Sample& each : entry.references) {
    launches.add(each.launches);
    durations.add(each.duration_ns);
    waits.add(each.waited_ns);
  }
  constexpr std::size_t kTail = 990;
  entry.facts.launches = median_of(launches);
  entry.facts.duration_ns = median_of(durations);
  entry.facts.waited_ns = median_of(waits);
  entry.facts.keeps_gpu_busy = entry.facts.waited_ns >= entry.facts.duration_ns / 3 * 2;
  entry.facts.waits = entry.facts.waited_ns >= entry.facts.duration_ns / 100;
  entry.facts.median_allowed_ns =
      static_cast<double>(entry.facts.duration_ns) * allowed_.median / 1000;
  entry.facts.tail_wait_ns = static_cast<double>(bound_of(waits, kTail));
  entry.facts.tail_allowed_ns =
      static_cast<double>(bound_of(durations, kTail)) * allowed_.tail / 1000;
}

/// Bets on one pair. What is allowed comes from references before this pair, or the bets were not
/// fair.
void CloseLaw::compare(Entry& entry) noexcept {
  const Facts& facts = entry.facts;
  const double longer = difference(entry.compared->waited_ns, entry.reference->waited_ns);
  const double median = sign(longer - facts.median_allowed_ns);
  const auto late = [&](const Sample& job, double allowed) {
    return static_cast<double>(job.waited_ns) > facts.tail_wait_ns + allowed ? 1.0 : 0.0;
  };
  const double tail =
      late(*entry.compared, facts.tail_allowed_ns) - late(*entry.reference, 0) - kMoreLate;
  entry.bets.median_harmless.add(-median);
  entry.bets.tail_harmless.add(-tail);
  entry.bets.median_harmful.watch(median);
  entry.bets.tail_harmful.watch(tail);
  const double duration =
      sign(difference(entry.compared->duration_ns, entry.reference->duration_ns) -
           facts.median_allowed_ns);
  entry.bets.duration_harmful.watch(duration);
  entry.bets.grew_harmful.alarm(median);
  entry.costs.add(static_cast<std::int64_t>(std::clamp(longer, -1e18, 1e18)));
  ++entry.pairs;
  if (entry.phase == Phase::kConfirm) budget_.confirms(median, tail, duration);
  if (entry.paid > TrialBudget::kMostOfTrial) pay(entry, -1);
}

/// Each job shows what it cost, and not only those of pairs: bets on the median and on the tail say
/// nothing of the mean. A program that asks instead of waiting shows it in the durations only.
void CloseLaw::charge(Entry& entry, const Decision& decision, const Job& job) noexcept {
  constexpr double kJobsFade = 16;
  constexpr double kMost = 8;  ///< Times the duration of a job, or so long: an accident.
  constexpr double kMostNs = 500e6;
  const auto waited = static_cast<double>(job.waited_ns);
  const auto duration = static_cast<double>(job.duration_ns);
  if (job.closed_ns == 0) {
    entry.first_jobs = std::min(entry.first_jobs + 1, kJobsFade);
    entry.first_wait_ns += (waited - entry.first_wait_ns) / entry.first_jobs;
    entry.first_duration_ns += (duration - entry.first_duration_ns) / entry.first_jobs;
    return;
  }
  // The budget of trials pays for what is tried.
  if (decision.when == When::kFirst || entry.first_jobs == 0 || entry.phase == Phase::kTry) return;
  const double cost =
      entry.facts.waits ? waited - entry.first_wait_ns : duration - entry.first_duration_ns;
  spent_ns_ += std::min(cost, std::max(kMost * entry.first_duration_ns, kMostNs));
}

/// A level at rest has a pair in 16 jobs. A neighbour that grows loud is seen sooner in all of
/// them: in what they wait, because durations drift with the host.
void CloseLaw::suspect(Entry& entry, const Job& job) noexcept {
  if (entry.phase != Phase::kHold || entry.level == 0) return;
  const double longer = difference(job.waited_ns, entry.facts.waited_ns);
  entry.suspicion.alarm(sign(longer - entry.facts.median_allowed_ns));
}

/// Also for a job that shows nothing: it may be one that does not end because of the trial.
void CloseLaw::pay(Entry& entry, double jobs) noexcept {
  budget_.pay(jobs);
  entry.paid += jobs;
}

double CloseLaw::Bets::harmful() const noexcept {
  return std::max({median_harmful.wealth(), tail_harmful.wealth(), duration_harmful.wealth()});
}

void CloseLaw::conclude(Entry& entry) noexcept {
  const double median = entry.bets.median_harmless.wealth();
  const bool harmful = entry.bets.harmful() >= kSure || entry.bets.grew_harmful.wealth() >= kAlarm;
  const bool too_long = entry.pairs >= (median < kSure ? kMostPairs : kMostTailPairs);
  if (entry.phase == Phase::kTry) {
    if (harmful || too_long) {
      give_up(entry);
    } else if (median >= kSure) {
      go_up(entry);
    }
  } else if (harmful || (entry.phase == Phase::kConfirm && too_long)) {
    fall(entry);
  } else if (entry.phase == Phase::kConfirm &&
             std::min(median, entry.bets.tail_harmless.wealth()) >= kCertain) {
    rest(entry);
  }
}

/// The level that was tried is harmless at the median. The tail is shown where the climb ends.
void CloseLaw::go_up(Entry& entry) noexcept {
  pay(entry, -entry.paid);
  entry.home = entry.level;
  entry.confirmed = false;
  entry.climbed = true;
  const bool on = entry.level < kWaitLevel && entry.jobs >= entry.retry_at;
  const Bet tail_harmful = entry.bets.tail_harmful;
  test(entry, entry.level + (on ? 1 : 0), on ? Phase::kTry : Phase::kConfirm);
  // What harms the tail at one level harms it at the next one, too.
  entry.bets.tail_harmful = tail_harmful;
}

void CloseLaw::rest(Entry& entry) noexcept {
  entry.phase = Phase::kHold;
  entry.home = entry.level;
  entry.drop = 1;
  entry.confirmed = true;
  if (std::exchange(entry.climbed, false)) entry.pause = std::max(entry.pause / 2, kFirstPause);
}

/// A trial failed. Not closing is no step of the climb.
void CloseLaw::give_up(Entry& entry) noexcept {
  budget_.forget();
  if (entry.level != kNeverLevel) {
    wait_longer(entry);
    if (entry.home == 0) entry.confirmed = true;
  }
  const bool rests = entry.home == 0 || entry.confirmed;
  test(entry, entry.home, rests ? Phase::kHold : Phase::kConfirm);
}

/// A level that was harmless is not any more. If the level below is not either, the next fall is
/// twice as deep. Below "never" is the climb, which may begin at once.
void CloseLaw::fall(Entry& entry) noexcept {
  budget_.forget();
  const bool was_open = entry.level == kNeverLevel;
  entry.home = was_open ? 0 : entry.level - std::min(entry.level, entry.drop);
  if (was_open) {
    entry.retry_at = entry.jobs;
  } else {
    entry.drop *= 2;
    wait_longer(entry);
  }
  entry.climbed = false;
  entry.confirmed = entry.home == 0 && !was_open;
  test(entry, entry.home, entry.home == 0 ? Phase::kHold : Phase::kConfirm);
}

void CloseLaw::wait_longer(Entry& entry) noexcept {
  entry.retry_at = entry.jobs + entry.pause;
  entry.pause = std::min(2 * entry.pause, kLongestPause);
}

/// For the budget: trials that have begun go on when it has paid for what was. What levels that
/// were found have overspent is paid back before they are used again.
bool CloseLaw::waits(const Entry& entry) const noexcept {
  return (entry.phase != Phase::kHold && budget_.is_overdrawn()) ||
         (entry.phase != Phase::kTry && entry.level != 0 && overdrawn_);
}

bool CloseLaw::knows(std::uint64_t fingerprint) const noexcept {
  return std::any_of(entries_.begin(), entries_.end(), [=](const Entry& entry) {
    return entry.used != 0 && entry.fingerprint == fingerprint;
  });
}

const CloseLaw::Entry* CloseLaw::find(std::uint64_t fingerprint,
                                      std::uint64_t neighbours) const noexcept {
  const auto* const found = std::find_if(entries_.begin(), entries_.end(), [=](const Entry& entry) {
    return entry.used != 0 && entry.is(fingerprint, neighbours);
  });
  return found == entries_.end() ? nullptr : found;
}

bool CloseLaw::closes_at_first(std::uint64_t fingerprint, std::uint64_t neighbours) const noexcept {
  const Entry* const found = find(fingerprint, neighbours);
  return found == nullptr || found->level == 0 || waits(*found);
}

CloseLaw::Status CloseLaw::status(std::uint64_t fingerprint,
                                  std::uint64_t neighbours) const noexcept {
  Status status;
  const Entry* const found = find(fingerprint, neighbours);
  if (found == nullptr) return status;
  const Entry& entry = *found;
  status.level = entry.level;
  // While something else is tried, what was found is in force.
  status.trying = entry.phase == Phase::kTry;
  if (entry.confirmed && status.trying) status.level = entry.home;
  if (waits(entry)) status.level = 0;
  status.jobs = entry.jobs;
  status.pairs = entry.pairs;
  if (entry.confirmed && entry.phase != Phase::kConfirm) {
    status.state = entry.home == 0             ? State::kClosesAtFirst
                   : entry.home == kNeverLevel ? State::kStaysOpen
                                               : State::kClosesLater;
  }
  const std::size_t n = entry.costs.size();
  if (n == 0) return status;
  // The interval of a median: the number of values below it is binomial.
  const double half = 0.98 * std::sqrt(static_cast<double>(n));
  const double middle = static_cast<double>(n) / 2;
  const auto place = [&](double at) {
    return at_place(entry.costs, static_cast<std::size_t>(std::clamp(at, 1.0, double(n))));
  };
  status.cost_ns = median_of(entry.costs);
  status.cost_low_ns = place(std::floor(middle - half));
  status.cost_high_ns = place(std::ceil(middle + half + 1));
  return status;
}

}  // namespace sluice::intercept
