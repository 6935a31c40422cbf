#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "controller/tally.hpp"
#include "shm/board.hpp"
#include "shm/snapshot.hpp"

namespace sluice::controller {

/// All metrics of a session in the Prometheus text format, as of `now_ns`. Contains no command
/// line: any local user may read the page. May run in any thread while the loop runs.
/// docs/reference/controller.md lists the metrics.
[[nodiscard]] std::string exposition(const shm::Board& board, const Tally& tally,
                                     std::uint64_t now_ns,
                                     const std::vector<shm::OutsideProcess>& outside = {});

}  // namespace sluice::controller
