#pragma once
#include <string>

#include "base/command_line.hpp"
#include "base/install.hpp"

namespace sluice::tools {

/// Whether the simulated GPU is to be used, and why if nobody asked for it.
struct GpuDecision {
  bool simulated = false;
  std::string reason;
};

/// Asks `sluice gpus`, a process of its own, because an
/// initialised driver leaves threads and files behind in its process. Throws base::RunError with
/// what that says if there is no such GPU.
GpuDecision decide_gpu(const base::Install& install, base::GpuChoice choice);

}  // namespace sluice::tools
