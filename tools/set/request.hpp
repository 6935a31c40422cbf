#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "shm/policy.hpp"
#include "shm/snapshot.hpp"
#include "shm/target.hpp"

namespace sluice::tools {

/// The changes. A setting without a value stays as it is.
struct Settings {
  std::optional<int> priority;
  std::optional<shm::Policy> policy;
  std::optional<shm::Target> target;
  std::optional<std::uint32_t> slice = {};
  std::optional<std::uint64_t> memory;  ///< In bytes; 0: no limit.
  std::optional<std::uint32_t> weight = {};
  std::optional<std::uint32_t> give = {};  ///< In 1/1000.
};

/// Asks the session's controller to change a client. Throws base::RunError if no controller
/// answers, and base::UsageError if it refuses.
void ask_for(const std::string& session, std::uint64_t board_id, const shm::ClientSnapshot& client,
             const Settings& settings);

/// Waits until the client's process has taken up the target and the policy, or has shown that its
/// device does not support the policy, and returns the client as it is then. Returns nothing after
/// `patience_ms`. Throws base::UsageError if the client ends meanwhile.
[[nodiscard]] std::optional<shm::ClientSnapshot> wait_until_taken(const std::string& session,
                                                                  std::uint64_t board_id,
                                                                  const shm::ClientSnapshot& client,
                                                                  int patience_ms);

}  // namespace sluice::tools
