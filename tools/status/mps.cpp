// What `sluice status` and `sluice top` say about MPS: who shares the GPU with whom, and how wide.
#include <fmt/format.h>

#include <algorithm>

#include "tools/common/never_idle.hpp"
#include "tools/status/format.hpp"

namespace sluice::tools {
namespace {

using Mode = shm::MpsWord::Mode;

template <class Which>
const shm::ClientSnapshot* find(const shm::Snapshot& snapshot, const shm::ClientSnapshot& client,
                                Which which) {
  const auto found = std::find_if(
      snapshot.clients.begin(), snapshot.clients.end(), [&](const shm::ClientSnapshot& other) {
        return !shm::same_client(client, other) && other.device == client.device &&
               other.state == shm::SlotState::kLive && which(other);
      });
  return found == snapshot.clients.end() ? nullptr : &*found;
}

std::string width_of(const shm::MpsWord& mps) {
  if (mps.is_wide()) return mps.sms == 0 ? "all SMs" : fmt::format("all {} SMs", mps.sms);
  return mps.sms == 0 ? fmt::format("{} % of the SMs", mps.percent)
                      : fmt::format("{} SMs ({} %)", mps.sms, mps.percent);
}

/// Whether `auto` would choose another width now; empty if it would not, and for critical clients.
std::string better_width(const shm::Snapshot& snapshot, const shm::ClientSnapshot& client) {
  if (client.priority != 0) return {};
  const auto above = [&](const auto& other) { return other.priority > client.priority; };
  if (client.mps.is_wide()) {
    const auto* busy = find(snapshot, client,
                            [&](const auto& other) { return above(other) && never_idle(other); });
    if (busy == nullptr) return {};
    return fmt::format("; pid {} above it is never idle: --sms 50% would delay that less",
                       busy->pid);
  }
  return find(snapshot, client, above) != nullptr
             ? std::string()
             : "; nobody is above it now: with --sms all it would be faster";
}

std::string under_the_sessions(const shm::Snapshot& snapshot, const shm::ClientSnapshot& client) {
  const auto* other = find(snapshot, client, [&](const auto& each) {
    return each.mps.mode == Mode::kSession && each.mps.daemon > client.mps.daemon;
  });
  if (other != nullptr) {
    return fmt::format(
        "^ under an MPS daemon of the session that was killed: takes turns with pid {} and others "
        "under the new one; start it again",
        other->pid);
  }
  return "under the session's MPS daemon, " + width_of(client.mps) + better_width(snapshot, client);
}

}  // namespace

std::string mps_note(const shm::Snapshot& snapshot, const shm::ClientSnapshot& client) {
  if (client.state != shm::SlotState::kLive) return {};
  if (client.mps.mode == Mode::kSession) return under_the_sessions(snapshot, client);
  if (client.mps.mode == Mode::kUnknown) return {};
  const bool mixed = find(snapshot, client, [](const auto& other) {
                       return other.mps.mode == Mode::kSession;
                     }) != nullptr;
  if (client.mps.mode == Mode::kOther) {
    return mixed ? "^ under another MPS daemon: takes turns with the session's MPS programs"
                 : "under an MPS daemon that is not the session's, " + width_of(client.mps);
  }
  return mixed ? "^ outside of the session's MPS daemon: time-sliced against its programs; start "
                 "it with --mps"
               : std::string();
}

std::string_view mps_mode_name(Mode mode) {
  switch (mode) {
    case Mode::kNone:
      return "none";
    case Mode::kSession:
      return "session";
    case Mode::kOther:
      return "other";
    case Mode::kUnknown:
      break;
  }
  return "unknown";
}

}  // namespace sluice::tools
