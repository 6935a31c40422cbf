#pragma once
#include <string>
#include <vector>

#include "base/processes.hpp"
#include "shm/snapshot.hpp"

/// The processes that use a GPU of the session and have no slot.
namespace sluice::shm {

/// Finds them for all devices of the snapshot, without their commands. Takes some ms.
[[nodiscard]] std::vector<OutsideProcess> find_outside(const Snapshot& snapshot,
                                                       const std::string& session);

/// The same, with `command` and `preloaded`. May block on a process: see base::command_line().
[[nodiscard]] std::vector<OutsideProcess> describe_outside(const Snapshot& snapshot,
                                                           const std::string& session);

/// Those of `on_gpu` that have no slot in the snapshot, without their commands. `trust_pids`: they
/// are surely pids of this namespace. Otherwise that is so if one of them has a slot; if none has,
/// the result has pid 0 for each process that is more than the device has clients.
[[nodiscard]] std::vector<OutsideProcess> outside_of(const Snapshot& snapshot, int device,
                                                     const std::vector<base::GpuProcess>& on_gpu,
                                                     bool trust_pids);

}  // namespace sluice::shm
