#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/metrics_text.hpp"
#include "controller/ledger.hpp"
#include "shm/board.hpp"
#include "shm/snapshot.hpp"

namespace sluice::controller {

/// How the metrics name a device of the board: by its UUID.
[[nodiscard]] std::string device_name(const shm::Board& board, std::uint8_t index);

/// The metrics of GPUs.
void write_devices(base::MetricsText& out, const shm::Board& board,
                   const std::vector<shm::OutsideProcess>& outside,
                   const std::map<int, DeviceUse>& use);

}  // namespace sluice::controller
