#pragma once
#include <string>
#include <vector>

#include "shm/snapshot.hpp"

namespace sluice::tools {

/// The clients that `text` names: a pid (with all devices of that process), `slot:N`, a name, or a
/// part of a name or command that only one process has, or has as whole words. A number is a pid,
/// as is `pid:N`. Throws base::UsageError, with a list of clients, if it names none or several
/// processes.
[[nodiscard]] std::vector<shm::ClientSnapshot> choose_clients(const shm::Snapshot& snapshot,
                                                              const std::string& text);

/// "train.py (pid 4711, slot 3)"
[[nodiscard]] std::string describe(const shm::ClientSnapshot& client);

}  // namespace sluice::tools
