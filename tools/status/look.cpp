#include "tools/status/look.hpp"

#include <signal.h>

#include <cerrno>

#include "base/clock.hpp"
#include "shm/mapping.hpp"

namespace sluice::tools {

bool process_exists(std::uint32_t pid) {
  return kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH;
}

bool somebody_is_left(shm::Snapshot& snapshot, bool (*exists)(std::uint32_t pid)) {
  if (snapshot.controller_lives) return true;
  bool left = snapshot.controller_pid != 0 && exists(snapshot.controller_pid);
  for (shm::ClientSnapshot& client : snapshot.clients) {
    if (client.state != shm::SlotState::kDead && exists(client.pid)) {
      left = true;
    } else {
      client.state = shm::SlotState::kDead;
    }
  }
  return left;
}

shm::Snapshot look_at(const std::string& session) {
  const shm::BoardMapping mapping = shm::BoardMapping::inspect(session);
  shm::Snapshot snapshot = shm::take_snapshot(mapping.board(), base::monotonic_ns());
  snapshot.service = mapping.about();
  if (!somebody_is_left(snapshot, process_exists)) {
    throw shm::NoBoard("nobody of session " + session + " lives");
  }
  return snapshot;
}

}  // namespace sluice::tools
