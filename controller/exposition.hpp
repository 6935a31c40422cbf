#pragma once
#include <cstdint>
#include <string>

#include "controller/tally.hpp"
#include "shm/board.hpp"

namespace sluice::controller {

/// All metrics of a session in the Prometheus text format, as of `now_ns`. May run in any thread
/// while the loop runs. docs/reference/controller.md lists the metrics.
[[nodiscard]] std::string exposition(const shm::Board& board, const Tally& tally,
                                     std::uint64_t now_ns);

}  // namespace sluice::controller
