#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "controller/lookout.hpp"
#include "controller/tally.hpp"
#include "shm/board.hpp"
#include "shm/snapshot.hpp"

namespace sluice::controller {

/// What a page shows in addition.
struct Show {
  /// Command lines. Any local user may read a loopback port, so they are only on a page that nobody
  /// else can read.
  bool commands = false;
  bool users = false;  ///< The user of each client, where clients have several.
};

/// All metrics of a session in the Prometheus text format, as of `now_ns`. May run in any thread
/// while the loop runs. docs/reference/controller.md lists the metrics.
[[nodiscard]] std::string exposition(const shm::Board& board, const Tally& tally,
                                     std::uint64_t now_ns,
                                     const std::vector<shm::OutsideProcess>& outside = {},
                                     const Lookout::Use& use = {}, Show show = {});

}  // namespace sluice::controller
