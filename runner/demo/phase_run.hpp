#pragma once
#include <string>

#include "base/install.hpp"
#include "base/signal_fd.hpp"

namespace sluice::runner {

/// Runs `sluice run` on FOLDER/experiment.json inside that folder, its report in FOLDER/output.txt.
/// A signal that comes to us is passed on, and it ends its workers. Returns its exit code; throws
/// base::RunError if the report cannot be written.
[[nodiscard]] int run_phase(const base::Install& install, const std::string& gpu,
                            const std::string& folder, const base::SignalFd& signals);

}  // namespace sluice::runner
