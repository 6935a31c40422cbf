#pragma once
#include "base/install.hpp"

namespace sluice::tools {

/// Makes the program that this process becomes find the simulated driver. Throws base::RunError if
/// that driver is missing.
void use_simulated_gpu(const base::Install& install);

/// Makes the program that this process becomes find the real driver. Throws base::RunError if that
/// driver has no device. `sluice gpus` asks the driver, in another process: an initialised driver
/// leaves threads and files behind.
void use_real_gpu(const base::Install& install);

}  // namespace sluice::tools
