#include "tools/status/look.hpp"

#include <signal.h>

#include <cerrno>

#include "shm/clock.hpp"
#include "shm/mapping.hpp"

namespace sluice::tools {

bool process_exists(std::uint32_t pid) {
  return kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH;
}

bool somebody_is_left(Snapshot& snapshot, bool (*exists)(std::uint32_t pid)) {
  if (snapshot.controller_lives) return true;
  bool left = snapshot.controller_pid != 0 && exists(snapshot.controller_pid);
  for (ClientSnapshot& client : snapshot.clients) {
    if (client.state != shm::SlotState::kDead && exists(client.pid)) {
      left = true;
    } else {
      client.state = shm::SlotState::kDead;
    }
  }
  return left;
}

Snapshot look_at(const std::string& session) {
  const shm::BoardMapping mapping = shm::BoardMapping::inspect(session);
  Snapshot snapshot = take_snapshot(mapping.board(), shm::monotonic_ns());
  if (!somebody_is_left(snapshot, process_exists)) {
    throw shm::NoBoard("nobody of session " + session + " lives");
  }
  return snapshot;
}

}  // namespace sluice::tools
