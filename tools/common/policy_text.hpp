#pragma once
#include <string>

namespace sluice::tools {

/// What is wrong with a policy as a user wrote it, and which one was likely meant; empty if
/// nothing.
[[nodiscard]] std::string check_policy(const std::string& text);

}  // namespace sluice::tools
