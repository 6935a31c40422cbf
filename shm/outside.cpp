#include "shm/outside.hpp"

#include <signal.h>

#include <algorithm>
#include <cerrno>

#include "base/processes.hpp"
#include "shm/board.hpp"

namespace sluice::shm {
namespace {

bool has_slot(const Snapshot& snapshot, pid_t pid) {
  return std::any_of(
      snapshot.clients.begin(), snapshot.clients.end(),
      [&](const ClientSnapshot& client) { return static_cast<pid_t>(client.pid) == pid; });
}

void describe(OutsideProcess& process) {
  if (process.pid == 0) return;
  const auto pid = static_cast<pid_t>(process.pid);
  if (kill(pid, 0) != 0 && errno == ESRCH) {
    process.pid = 0;
    return;
  }
  process.command = base::command_line(pid, Slot{}.command.size() - 1);
  if (process.command.empty()) process.command = base::short_name(pid);
  process.preloaded = base::has_mapped(pid, "/libsluice_intercept.so");
}

}  // namespace

std::vector<OutsideProcess> outside_of(const Snapshot& snapshot, int device,
                                       const std::vector<base::GpuProcess>& on_gpu,
                                       bool trust_pids) {
  std::vector<OutsideProcess> outside;
  for (const base::GpuProcess& process : on_gpu) {
    if (has_slot(snapshot, process.pid)) {
      trust_pids = true;
    } else {
      outside.push_back(
          {device, static_cast<std::uint32_t>(process.pid), {}, process.memory_bytes, false});
    }
  }
  if (trust_pids) return outside;
  const auto clients = std::count_if(
      snapshot.clients.begin(), snapshot.clients.end(), [&](const ClientSnapshot& client) {
        return client.device == device && client.state != SlotState::kDead;
      });
  const auto more = static_cast<std::ptrdiff_t>(on_gpu.size()) - clients;
  outside.assign(static_cast<std::size_t>(std::max<std::ptrdiff_t>(more, 0)),
                 {device, 0, {}, {}, false});
  return outside;
}

std::vector<OutsideProcess> find_outside(const Snapshot& snapshot, const std::string& session) {
  std::vector<OutsideProcess> all;
  bool simulated = false;
  for (const DeviceSnapshot& device : snapshot.devices) {
    // The simulated GPUs of a session are one process, which has one list of clients.
    if (device.simulated && simulated) continue;
    simulated = simulated || device.simulated;
    const std::vector<OutsideProcess> found =
        outside_of(snapshot, device.index,
                   device.simulated ? base::simulated_gpu_processes(session)
                                    : base::gpu_processes(device.uuid),
                   device.simulated || base::in_initial_pid_namespace());
    all.insert(all.end(), found.begin(), found.end());
  }
  return all;
}

std::vector<OutsideProcess> describe_outside(const Snapshot& snapshot, const std::string& session) {
  std::vector<OutsideProcess> all = find_outside(snapshot, session);
  for (OutsideProcess& process : all) describe(process);
  return all;
}

}  // namespace sluice::shm
