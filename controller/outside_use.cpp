#include "controller/outside_use.hpp"

namespace sluice::controller {

std::map<int, shm::OutsideWord> OutsideUse::look(const std::vector<shm::OutsideProcess>& found,
                                                 const std::map<int, Measured>& measured,
                                                 std::uint64_t now_ns) {
  std::map<int, shm::OutsideWord> words;
  for (const shm::OutsideProcess& process : found) {
    shm::OutsideWord& word = words[process.device];
    const auto device = measured.find(process.device);
    // A pid of 0 is one that has no meaning here, so nothing measured can be its.
    if (process.pid == 0 || device == measured.end() || !device->second) {
      ++word.awake;
      continue;
    }
    const auto seen = device->second->find(static_cast<pid_t>(process.pid));
    const std::uint64_t percent = seen == device->second->end() ? 0 : seen->second;
    Process& known = processes_[{process.device, process.pid}];
    const std::uint64_t passed_ns = known.seen_ns == 0 ? 0 : now_ns - known.seen_ns;
    known.seen_ns = now_ns;
    if (percent != 0) known.awake_ns = now_ns;
    if (known.use.add(passed_ns / 100 * percent, passed_ns)) {
      ++word.busy;
    } else if (known.awake_ns != 0 && now_ns - known.awake_ns < kAwakeNs) {
      ++word.awake;
    }
  }
  std::erase_if(processes_, [now_ns](const auto& entry) { return entry.second.seen_ns != now_ns; });
  return words;
}

}  // namespace sluice::controller
