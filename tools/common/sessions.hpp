#pragma once
#include <string>

#include "base/error.hpp"

namespace sluice::tools {

/// The error that no such session is running. Names the sessions that are, and how to start one.
[[nodiscard]] base::RunError no_session(const std::string& session);

}  // namespace sluice::tools
