#include "intercept/slot/arrivals.hpp"

namespace sluice::intercept {

/// The count of an index goes on with its next stream, so a late write of the stream before is no
/// number of that one.
int Arrivals::take_index() noexcept {
  for (std::size_t i = 0; i < kStreams; ++i) {
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

void Arrivals::gate_closed(std::uint64_t now_ns) noexcept {
  for (std::size_t i = 0; i < kStreams; ++i) streams_[i].when_closed = arrived_[i].load();
  look(now_ns);
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
  for (std::size_t i = 0; i < kStreams; ++i) {
    if (!is_there(i, now_ns)) return false;
  }
  return true;
}

}  // namespace sluice::intercept
