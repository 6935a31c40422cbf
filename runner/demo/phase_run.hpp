#pragma once
#include <string>

#include "runner/layout.hpp"
#include "runner/run/signal_fd.hpp"

namespace sluice::runner {

/// Runs `sluice run` on FOLDER/experiment.json inside that folder, its report in FOLDER/output.txt.
/// A signal that comes to us is passed on, and it ends its workers. Returns its exit code; throws
/// RunError if the report cannot be written.
[[nodiscard]] int run_phase(const Layout& layout, const std::string& gpu, const std::string& folder,
                            const SignalFd& signals);

}  // namespace sluice::runner
