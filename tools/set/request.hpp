#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "shm/policy.hpp"
#include "shm/snapshot.hpp"

namespace sluice::tools {

/// What is to be changed; what is not there stays.
struct Settings {
  std::optional<int> priority;
  std::optional<shm::Policy> policy;
};

/// Asks the session's controller to change a client. Throws base::RunError if there is no
/// controller that answers, or if it refuses.
void ask_for(const std::string& session, std::uint64_t board_id, const shm::ClientSnapshot& client,
             const Settings& settings);

/// The client as it is once its process has taken up the policy asked for, or shown that its
/// device cannot. Nothing if it is not taken up within `patience_ms`. Throws base::UsageError if
/// the client ends meanwhile.
[[nodiscard]] std::optional<shm::ClientSnapshot> wait_until_taken(const std::string& session,
                                                                  std::uint64_t board_id,
                                                                  const shm::ClientSnapshot& client,
                                                                  int patience_ms);

}  // namespace sluice::tools
