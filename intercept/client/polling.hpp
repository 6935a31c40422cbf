#pragma once
#include "intercept/client/clients.hpp"

namespace sluice::intercept {

/// A step of the polling thread: asks the driver whether the work of transparent jobs is done, and
/// takes in samples of launch durations. Not for jobs of priority 0, which hold nobody.
Worker::Sleep poll_clients(Clients& clients);

}  // namespace sluice::intercept
