#pragma once
#include "base/install.hpp"

namespace sluice::tools {

/// Makes this process's successor find the simulated driver. Throws base::RunError if it is
/// missing.
void use_simulated_gpu(const base::Install& install);

/// Makes this process's successor find the real driver. Asks `sluice gpus` whether it finds a
/// device: another process, because an initialised driver leaves threads and files behind. Throws
/// base::RunError if there is none.
void use_real_gpu(const base::Install& install);

}  // namespace sluice::tools
