#pragma once
#include <string>

#include "tools/top/view.hpp"

namespace sluice::tools {

/// The JSON of `sluice status --json`, with the rates of each client.
[[nodiscard]] std::string top_json(const View& view, const std::string& session);

}  // namespace sluice::tools
