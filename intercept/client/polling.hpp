#pragma once
#include "intercept/client/clients.hpp"

namespace sluice::intercept {

/// One step of the polling thread: asks the driver whether the work of transparent jobs is done,
/// and collects samples of launch durations. Jobs of priority 0 hold nobody and are not polled.
Worker::Sleep poll_clients(Clients& clients);

}  // namespace sluice::intercept
