#pragma once
#include <string>
#include <vector>

#include "tools/status/snapshot.hpp"

namespace sluice::tools {

/// The clients that `text` names: a pid (with all devices of that process), `slot:N`, or a part of
/// a command that only one process has, or has as whole words. A number is a pid, as is `pid:N`.
/// Throws CommandError, with the clients there are, if it names none or more than one process.
[[nodiscard]] std::vector<ClientSnapshot> choose_clients(const Snapshot& snapshot,
                                                         const std::string& text);

/// "pid 4711, slot 3 (python train.py)"
[[nodiscard]] std::string describe(const ClientSnapshot& client);

}  // namespace sluice::tools
