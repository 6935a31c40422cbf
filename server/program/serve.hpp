#pragma once
#include "server/engines/engines.hpp"
#include "server/program/options.hpp"

namespace sluice::server {

inline constexpr int kExitContextLost = 3;

/// Serves until a signal, a client or the time limit ends the server. Returns the exit code. The
/// models have settled engines.
[[nodiscard]] int serve(const ServeOptions& options, Place place);

}  // namespace sluice::server
