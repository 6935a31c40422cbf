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

  struct Device {
    /// Of the device's time since the last look, by pid. Nothing: nobody can tell.
    std::optional<std::map<pid_t, unsigned>> percent;
    int clients = 0;  ///< How many processes with a slot may be among them.
  };

  /// `found`: all processes without a slot. Of those whose pids have no meaning here, so many are
  /// busy as there are more busy processes than clients. Call it every second or two. Returns what
  /// is known of each device that has a process without a slot.
  std::map<int, shm::OutsideWord> look(const std::vector<shm::OutsideProcess>& found,
                                       const std::map<int, Device>& devices, std::uint64_t now_ns);

 private:
  using Key = std::pair<int, pid_t>;  ///< Device and pid.
  struct Process {
    base::GpuUse use;
    std::uint64_t seen_ns = 0;
    std::uint64_t awake_ns = 0;  ///< When it last used anything; 0: never.
  };
  void measure(Key key, unsigned percent, std::uint64_t now_ns);
  [[nodiscard]] int busy_on(int device) const;

  std::map<Key, Process> processes_;
};

}  // namespace sluice::controller
