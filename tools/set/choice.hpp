#pragma once
#include <string>
#include <vector>

#include "shm/snapshot.hpp"

namespace sluice::tools {

/// The clients that `text` names: a pid (with all devices of that process), `slot:N`, or a part of
/// a command that only one process has, or has as whole words. A number is a pid, as is `pid:N`.
/// Throws base::UsageError, with the clients there are, if it names none or more than one process.
[[nodiscard]] std::vector<shm::ClientSnapshot> choose_clients(const shm::Snapshot& snapshot,
                                                              const std::string& text);

/// "pid 4711, slot 3 (python train.py)"
[[nodiscard]] std::string describe(const shm::ClientSnapshot& client);

}  // namespace sluice::tools
