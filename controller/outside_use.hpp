#pragma once
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/gpu_use.hpp"
#include "shm/outside_word.hpp"
#include "shm/snapshot.hpp"

namespace sluice::controller {

/// Which of the processes without a slot use their GPU, and do not only have a context there. Pure:
/// the time is that of the caller.
class OutsideUse {
 public:
  /// A process that used a little counts as awake for so long.
  static constexpr std::uint64_t kAwakeNs = 30'000'000'000;

  /// Percent of a device by pid since the last look. Nothing: nobody can tell.
  using Measured = std::optional<std::map<pid_t, unsigned>>;

  /// `found`: all processes without a slot. `measured`: by device. Call it every second or two.
  /// Returns what is known of each device that has such a process.
  std::map<int, shm::OutsideWord> look(const std::vector<shm::OutsideProcess>& found,
                                       const std::map<int, Measured>& measured,
                                       std::uint64_t now_ns);

 private:
  struct Process {
    base::GpuUse use;
    std::uint64_t seen_ns = 0;
    std::uint64_t awake_ns = 0;  ///< When it last used anything; 0: never.
  };
  std::map<std::pair<int, std::uint32_t>, Process> processes_;  ///< By device and pid.
};

}  // namespace sluice::controller
