#include "intercept/jobs/trials.hpp"

#include <algorithm>
#include <new>

#include "intercept/jobs/before_job.hpp"

namespace sluice::intercept {
namespace {

using When = CloseLaw::Decision::When;

// The bounds of the time from one look at the launches to the next.
constexpr std::uint64_t kShortestLookNs = 50'000;
constexpr std::uint64_t kLongestLookNs = 5'000'000;

}  // namespace

Trials::Trials(ClientSlot& client, bool on) noexcept
    : client_(client), law_(on ? new (std::nothrow) CloseLaw : nullptr) {}

/// Jobs that the program marks are of another kind than jobs that are found. Nothing more is known
/// of a job when it begins.
Trials::Step Trials::begin(std::uint64_t now, bool marked) noexcept {
  runs_ = true;
  began_ns_ = now;
  waited_ns_ = 0;
  decision_ = law_->decide(marked ? 2 : 1, lower_clients(client_, now).id, now);
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
  return {false, CloseLaw::kNever};
}

/// Looks again when the launches will have been made, if they go on as they came.
Trials::Step Trials::look(std::uint64_t now, std::uint64_t launches) noexcept {
  if (decision_.when == When::kAfterTime) {
    const std::uint64_t end = began_ns_ + decision_.ns;
    return {now >= end, now >= end ? CloseLaw::kNever : end};
  }
  if (decision_.when != When::kAfterLaunches) return {false, CloseLaw::kNever};
  if (launches >= decision_.launches) return {true, CloseLaw::kNever};
  const double left = static_cast<double>(decision_.launches - launches) /
                      static_cast<double>(std::max<std::uint64_t>(launches, 1));
  const double ns = left * static_cast<double>(now - std::min(now, began_ns_));
  return {false,
          now + static_cast<std::uint64_t>(std::clamp(ns, static_cast<double>(kShortestLookNs),
                                                      static_cast<double>(kLongestLookNs)))};
}

void Trials::waited(std::uint64_t since, std::uint64_t now) noexcept {
  if (runs_) waited_ns_ += now - std::min(now, std::max(since, began_ns_));
}

void Trials::ended(std::uint64_t now, std::uint64_t launches, std::uint64_t closed) noexcept {
  runs_ = false;
  closes_at_wait_.store(false);
  const LowerClients lower = lower_clients(client_, now);
  CloseLaw::Job job;
  job.waited_ns = waited_ns_;
  job.duration_ns = now - began_ns_;
  job.launches = launches;
  if (closed != 0) job.closed_ns = closed - std::min(closed, began_ns_);
  job.neighbour_busy = lower.busy;
  job.neighbours = lower.id;
  law_->ended(decision_, job);
}

}  // namespace sluice::intercept
