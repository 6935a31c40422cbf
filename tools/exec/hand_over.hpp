#pragma once
#include <string>
#include <vector>

namespace sluice::tools {

/// Looks at the command line of the program for one that hands its work to somebody else: a client
/// of a container engine, of another machine or of a batch system, or one that clears the
/// environment. What it starts gets neither the preload nor the SLUICE_* variables. Returns one
/// line that says so and what to do, or nothing.
[[nodiscard]] std::string hand_over_warning(const std::vector<std::string>& command);

}  // namespace sluice::tools
