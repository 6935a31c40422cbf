#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "controller/tally.hpp"
#include "shm/board.hpp"
#include "shm/snapshot.hpp"

namespace sluice::controller {

/// Who may read the page. Any local user may read a loopback port, so command lines are only on a
/// page that nobody else can read.
enum class Readers { kEveryLocalUser, kOwnUser };

/// All metrics of a session in the Prometheus text format, as of `now_ns`. May run in any thread
/// while the loop runs. docs/reference/controller.md lists the metrics.
[[nodiscard]] std::string exposition(const shm::Board& board, const Tally& tally,
                                     std::uint64_t now_ns,
                                     const std::vector<shm::OutsideProcess>& outside = {},
                                     Readers readers = Readers::kEveryLocalUser);

}  // namespace sluice::controller
