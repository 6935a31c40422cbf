#pragma once
#include <cstdint>
#include <functional>

namespace sluice::controller {

/// When a trial of a device's time slices begins and when it is ended: the rule, pure
/// (docs/reference/slices.md).
class TrialRule {
 public:
  /// Nobody has used the device for this long before a trial.
  static constexpr std::uint64_t kQuietNs = 10'000'000'000;
  /// A trial takes 15 s.
  static constexpr std::uint64_t kLongestNs = 90'000'000'000;
  /// Between the beginnings of two trials: twice as long each time.
  static constexpr std::uint64_t kFirstPauseNs = 600'000'000'000;
  static constexpr std::uint64_t kMostPauseNs = 86'400'000'000'000;

  enum class Do : std::uint8_t { kNothing, kBegin, kEnd };

  struct Seen {
    bool quiet = false;    ///< No client works or comes.
    bool wanted = false;   ///< There is no answer, and the device may be tried.
    bool running = false;  ///< A trial of this device runs.
  };

  /// `foreign`: whether a program outside Sluice uses the device. Asked only when it matters,
  /// because the question takes milliseconds.
  Do tick(std::uint64_t now_ns, Seen seen, const std::function<bool()>& foreign);

 private:
  std::uint64_t quiet_since_ns_ = 0;
  std::uint64_t began_ns_ = 0;
  std::uint64_t next_ns_ = 0;
  std::uint64_t pause_ns_ = kFirstPauseNs;
};

}  // namespace sluice::controller
