#include "tools/common/sessions.hpp"

#include <filesystem>

#include "base/node_service.hpp"
#include "shm/session.hpp"

namespace sluice::tools {
namespace {

/// The names of this user's sessions with a board, without `session`, separated by commas.
std::string other_sessions(const std::string& session) {
  const std::string prefix = shm::board_name("");
  std::string names;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
    const std::string name = entry.path().filename();
    if (name == prefix + session) continue;  // a board without processes
    if (!name.starts_with(prefix) || !base::valid_session_name(name.substr(prefix.size())))
      continue;
    names += (names.empty() ? "" : ", ") + name.substr(prefix.size());
  }
  return names;
}

}  // namespace

base::RunError no_session(const std::string& session) {
  if (session == base::kNodeSession) {
    return base::RunError(
        "the node service does not run; as root, `systemctl start sluice-node` or `sluice node` "
        "starts it");
  }
  const std::string others = other_sessions(session);
  return base::RunError(
      "no session " + session + " is running" +
      (others.empty() ? "" : " (there are: " + others + ")") +
      "; `sluice exec --priority 0 -- PROGRAM` or `sluice controller` starts one");
}

}  // namespace sluice::tools
