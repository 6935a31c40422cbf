#pragma once
#include <string>

#include "base/error.hpp"

namespace sluice::tools {

/// That no such session is running, which ones are, and how one is started.
[[nodiscard]] base::RunError no_session(const std::string& session);

}  // namespace sluice::tools
