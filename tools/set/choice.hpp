#pragma once
#include <string>
#include <vector>

#include "shm/snapshot.hpp"

namespace sluice::tools {

/// The clients that `text` names: a pid (with all devices of that process), `slot:N`, a name (with
/// all processes of that name), `label:KEY=VALUE` (with all that have it), or a part of a name or
/// command that only one process has, or has as whole words. A number is a pid, as is `pid:N`.
/// `all`: every client that has the part. Throws base::UsageError, with a list of clients, if it
/// names none, or if several processes have the part.
[[nodiscard]] std::vector<shm::ClientSnapshot> choose_clients(const shm::Snapshot& snapshot,
                                                              const std::string& text,
                                                              bool all = false);

/// "train.py (pid 4711, slot 3)"
[[nodiscard]] std::string describe(const shm::ClientSnapshot& client);

}  // namespace sluice::tools
