#pragma once
#include <cstddef>
#include <cstdint>

#include "intercept/jobs/last_values.hpp"

namespace sluice::intercept {

/// What the last jobs or steps took that were alone. Programs outside Sluice are counted only now
/// and then, so a time counts when so much later nobody has been seen. Reads no clock.
template <std::size_t kSize>
class AloneTimes {
 public:
  explicit AloneTimes(std::uint64_t confirm_ns = 0) noexcept : confirm_ns_(confirm_ns) {}

  /// While many are not sure yet, newer ones are left out.
  void add(std::uint64_t took_ns, std::uint64_t now_ns) noexcept {
    confirm(now_ns);
    if (unsure_.size() < kSize) unsure_.add({took_ns, now_ns});
    confirm(now_ns);
  }
  void clear() noexcept {
    unsure_.clear();
    known_.clear();
  }
  /// Somebody has been seen, and may have been there for a while.
  void forget_unsure(std::uint64_t now_ns) noexcept {
    confirm(now_ns);
    unsure_.clear();
  }
  void confirm(std::uint64_t now_ns) noexcept {
    const auto is_sure = [&](const Time& each) { return each.ended_ns + confirm_ns_ <= now_ns; };
    if (unsure_.size() == 0 || !is_sure(*unsure_.begin())) return;
    for (const Time& each : unsure_) {
      if (is_sure(each)) known_.add(each.took_ns);
    }
    unsure_.keep_if([&](const Time& each) { return !is_sure(each); });
  }
  [[nodiscard]] const LastValues<std::uint64_t, kSize>& known() const noexcept { return known_; }
  /// Also those that are not sure yet.
  [[nodiscard]] std::size_t size() const noexcept { return known_.size() + unsure_.size(); }

 private:
  struct Time {
    std::uint64_t took_ns;
    std::uint64_t ended_ns;
  };
  std::uint64_t confirm_ns_;
  LastValues<Time, kSize> unsure_;  ///< Never more than fit, so the first one is the oldest.
  LastValues<std::uint64_t, kSize> known_;
};

}  // namespace sluice::intercept
