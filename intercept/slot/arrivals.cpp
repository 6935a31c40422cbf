#include "intercept/slot/arrivals.hpp"

#include <algorithm>
#include <utility>

namespace sluice::intercept {

/// The count of an index goes on with its next stream, so a late write of the stream before is no
/// number of that one.
int Arrivals::take_index() noexcept {
  for (std::size_t i = 0; i < kStreams; ++i) {
    if (streams_[i].used.load(std::memory_order_relaxed)) continue;
    bool free = false;
    if (streams_[i].used.compare_exchange_strong(free, true)) return static_cast<int>(i);
  }
  return -1;
}

void Arrivals::give_back(int index) noexcept {
  if (index >= 0) at(index).used.store(false);
}

void Arrivals::look(std::uint64_t now_ns) noexcept {
  for (std::size_t i = 0; i < kStreams; ++i) {
    OfStream& stream = streams_[i];
    const std::uint64_t issued = stream.issued.load(std::memory_order_relaxed);
    if (arrived_[i].load() != issued || stream.at_last == issued) continue;
    stream.at_last = issued;
    stream.at_last_since = now_ns;
  }
}

void Arrivals::gate_closed(std::uint64_t now_ns, bool held) noexcept {
  sum_ = 0;
  for (std::size_t i = 0; i < kStreams; ++i) {
    streams_[i].when_closed = arrived_[i].load();
    sum_ += streams_[i].when_closed;
  }
  held_ = held;
  closed_ns_ = last_arrival_ns_ = now_ns;
  look(now_ns);
}

/// Whether nothing has arrived for longer than work takes: by its learned duration, which may be
/// wrong, and by what was seen at the end of the last turns.
bool Arrivals::stands_still(std::uint64_t now_ns) noexcept {
  constexpr double kLeastNs = 500'000;  // what policies let a program launch behind a wait
  std::uint64_t sum = 0;
  for (const auto& word : arrived_) sum += word.load();
  if (std::exchange(sum_, sum) != sum) last_arrival_ns_ = now_ns;
  const auto longest = static_cast<double>(longest_ns_.load(std::memory_order_relaxed));
  const double bound = std::max(2 * longest, seen_ns_) + kLeastNs;
  stood_still_ = now_ns >= last_arrival_ns_ + static_cast<std::uint64_t>(bound * time_scale_);
  return stood_still_;
}

/// What took long may take as long again, and becomes doubtful with each turn in which it did not.
void Arrivals::turn_ended(std::uint64_t now_ns) noexcept {
  const double took = static_cast<double>(now_ns - std::min(now_ns, closed_ns_)) / time_scale_;
  seen_ns_ = std::max(seen_ns_ * kFade, stood_still_ || held_ ? 0 : 2 * took);
  const auto longest = static_cast<double>(longest_ns_.load(std::memory_order_relaxed));
  longest_ns_.store(static_cast<std::uint64_t>(longest * kFade), std::memory_order_relaxed);
}

bool Arrivals::is_there(std::size_t index, std::uint64_t now_ns) noexcept {
  OfStream& stream = streams_[index];
  const std::uint64_t issued = stream.issued.load(std::memory_order_relaxed);
  if (!stream.used.load() || issued == 0) return true;
  // The GPU came to this wait after the gate had closed, so it cannot have passed it.
  if (arrived_[index].load() != stream.when_closed) return true;
  if (stream.at_last != issued) return false;
  const auto rest_ns = static_cast<std::uint64_t>(
      static_cast<double>(stream.after_wait_ns.load(std::memory_order_relaxed)) * time_scale_);
  return now_ns >= stream.at_last_since + rest_ns;
}

bool Arrivals::complete(std::uint64_t now_ns) noexcept {
  look(now_ns);
  if (held_ || stands_still(now_ns)) return true;
  for (std::size_t i = 0; i < kStreams; ++i) {
    if (!is_there(i, now_ns)) return false;
  }
  return true;
}

}  // namespace sluice::intercept
