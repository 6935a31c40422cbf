#pragma once
#include <string>

#include "tools/common/command_line.hpp"

namespace sluice::tools {

/// That no such session is running, which ones are, and how one is started.
[[nodiscard]] CommandError no_session(const std::string& session);

}  // namespace sluice::tools
