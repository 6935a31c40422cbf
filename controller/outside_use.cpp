#include "controller/outside_use.hpp"

#include <algorithm>

namespace sluice::controller {

std::map<int, shm::OutsideWord> OutsideUse::look(const std::vector<shm::OutsideProcess>& found,
                                                 const std::map<int, Device>& devices,
                                                 std::uint64_t now_ns) {
  for (const auto& [index, device] : devices) {
    if (!device.percent) continue;
    for (const auto& [pid, percent] : *device.percent) measure({index, pid}, percent, now_ns);
  }
  std::map<int, shm::OutsideWord> words;
  std::map<int, int> nameless;
  for (const shm::OutsideProcess& process : found) {
    shm::OutsideWord& word = words[process.device];
    const auto device = devices.find(process.device);
    if (process.pid == 0 || device == devices.end() || !device->second.percent) {
      ++nameless[process.device];
      continue;
    }
    const Key key{process.device, static_cast<pid_t>(process.pid)};
    if (!device->second.percent->contains(key.second)) measure(key, 0, now_ns);
    const Process& known = processes_[key];
    if (known.use.uses()) {
      ++word.busy;
    } else if (known.awake_ns != 0 && now_ns - known.awake_ns < kAwakeNs) {
      ++word.awake;
    }
  }
  for (const auto& [index, count] : nameless) {
    const auto device = devices.find(index);
    const int clients = device == devices.end() ? 0 : device->second.clients;
    const int busy = std::clamp(busy_on(index) - clients, 0, count);
    words[index].busy = static_cast<std::uint16_t>(words[index].busy + busy);
    words[index].awake = static_cast<std::uint16_t>(words[index].awake + count - busy);
  }
  std::erase_if(processes_, [now_ns](const auto& entry) { return entry.second.seen_ns != now_ns; });
  return words;
}

void OutsideUse::measure(Key key, unsigned percent, std::uint64_t now_ns) {
  Process& process = processes_[key];
  const std::uint64_t passed_ns = process.seen_ns == 0 ? 0 : now_ns - process.seen_ns;
  process.seen_ns = now_ns;
  if (percent != 0) process.awake_ns = now_ns;
  process.use.add(passed_ns / 100 * percent, passed_ns);
}

int OutsideUse::busy_on(int device) const {
  return static_cast<int>(
      std::count_if(processes_.begin(), processes_.end(), [device](const auto& entry) {
        return entry.first.first == device && entry.second.use.uses();
      }));
}

}  // namespace sluice::controller
