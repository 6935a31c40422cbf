#pragma once
#include <string>

namespace sluice::shm {

/// The policy that a text that is none was likely meant to be; empty if none is near.
[[nodiscard]] std::string policy_meant_by(const std::string& text);

/// What is wrong with a policy as a user wrote it, and which one was likely meant; empty if
/// nothing.
[[nodiscard]] std::string check_policy(const std::string& text);

}  // namespace sluice::shm
