#pragma once
#include <string>

#include "tools/top/view.hpp"

namespace sluice::tools {

/// What `sluice status --json` prints, and per client what shows between two looks.
[[nodiscard]] std::string top_json(const View& view, const std::string& session);

}  // namespace sluice::tools
