#include "intercept/jobs/trials.hpp"

#include <algorithm>
#include <limits>
#include <new>

#include "intercept/jobs/before_job.hpp"

namespace sluice::intercept {
namespace {

using When = CloseLaw::Decision::When;

// The bounds of the time from one look at the launches to the next.
constexpr std::uint64_t kShortestLookNs = 50'000;
constexpr std::uint64_t kLongestLookNs = 5'000'000;

}  // namespace

Trials::Trials(ClientSlot& client) noexcept : client_(client), law_(new (std::nothrow) CloseLaw) {}

void Trials::give(std::uint32_t per_mille) noexcept {
  gives_.store(per_mille != 0, std::memory_order_relaxed);
  if (law_ != nullptr) law_->set(CloseLaw::Allowed::of(per_mille));
}

/// Without a client below under a device policy nothing is tried, and the published policies behave
/// as published.
Trials::Step Trials::begin(std::uint64_t now, std::uint64_t kind) noexcept {
  const LowerClients lower = lower_clients(client_, now);
  neighbours_ = lower.id;
  if (neighbours_ == 0) {
    decide_nothing();
    return {true, CloseLaw::kNever};
  }
  runs_ = true;
  closed_before_ = 0;
  began_ns_ = now;
  kind_ = kind;
  decision_ = law_->decide(kind_, neighbours_, now, lower.narrow);
  closes_at_wait_.store(decision_.when != When::kFirst && decision_.when != When::kNever);
  switch (decision_.when) {
    case When::kFirst:
      return {true, CloseLaw::kNever};
    case When::kAfterTime:
      return {false, now + decision_.ns};
    case When::kAfterLaunches:
      return {false, now + std::clamp(decision_.ns / 2, kShortestLookNs, kLongestLookNs)};
    case When::kAtWait:
    case When::kNever:
      break;
  }
  return {false, now + decision_.latest_ns};
}

bool Trials::looks_in_time() const noexcept {
  return decision_.when != When::kAtWait && decision_.when != When::kNever;
}

/// Looks again when the launches will have been made, if they go on as they came.
Trials::Step Trials::look(std::uint64_t now, std::uint64_t launches) noexcept {
  if (decision_.when == When::kAfterTime) {
    const std::uint64_t end = began_ns_ + decision_.ns;
    return {now >= end, now >= end ? CloseLaw::kNever : end};
  }
  const std::uint64_t latest = began_ns_ + decision_.latest_ns;
  if (now >= latest) return {true, CloseLaw::kNever};
  if (decision_.when != When::kAfterLaunches) return {false, latest};
  if (launches >= decision_.launches) return {true, CloseLaw::kNever};
  const double left = static_cast<double>(decision_.launches - launches) /
                      static_cast<double>(std::max<std::uint64_t>(launches, 1));
  const double ns = left * static_cast<double>(now - std::min(now, began_ns_));
  return {false,
          now + static_cast<std::uint64_t>(std::clamp(ns, static_cast<double>(kShortestLookNs),
                                                      static_cast<double>(kLongestLookNs)))};
}

void Trials::ended(std::uint64_t now, std::uint64_t launches, std::uint64_t closed,
                   std::uint64_t waited) noexcept {
  skip();
  const LowerClients lower = lower_clients(client_, now);
  CloseLaw::Job job;
  job.waited_ns = waited;
  job.duration_ns = now - began_ns_;
  job.launches = launches;
  if (closed != 0) job.closed_ns = closed - std::min(closed, began_ns_);
  job.neighbour_busy = lower.busy;
  job.neighbours = lower.id;
  law_->ended(decision_, job);
  constexpr std::uint64_t kPerShow = 15;  // odd: kinds of jobs may alternate
  if (++jobs_ % kPerShow == 0) show(law_->status(kind_, neighbours_));
}

void Trials::decide_nothing() noexcept {
  skip();
  if (state_ != CloseLaw::State::kUnknown) show({.state = CloseLaw::State::kUnknown});
}

/// One predicted job in so many is not, so that the law hears of the jobs.
bool Trials::need_early(std::uint64_t now) noexcept {
  constexpr std::uint64_t kUnpredicted = 256;
  if (!on()) return true;
  if (state_ != CloseLaw::State::kClosesAtFirst || trying_) return false;
  return closed_before_ < kUnpredicted - 1 && lower_clients(client_, now).id == neighbours_;
}

/// Without a client below under a device policy, gates close and open as published.
bool Trials::closes_at_first(std::uint64_t kind, std::uint64_t now) const noexcept {
  const std::uint64_t below = lower_clients(client_, now).id;
  return below != 0 && (!on() || law_->closes_at_first(kind, below));
}

void Trials::show(const CloseLaw::Status& status) noexcept {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  static constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
  const auto us = [](std::int64_t ns) {
    return static_cast<std::uint32_t>(std::clamp(ns / 1000, -kMost, kMost));
  };
  shm::Slot& slot = client_.slot();
  const shm::CloseWord word{status.state, static_cast<std::uint8_t>(status.level)};
  state_ = status.state;
  trying_ = status.trying;
  slot.close_state.store(word.pack(), kRelaxed);
  slot.close_low_us.store(us(status.cost_low_ns), kRelaxed);
  slot.close_high_us.store(us(status.cost_high_ns), kRelaxed);
}

}  // namespace sluice::intercept
