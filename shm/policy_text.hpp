#pragma once
#include <string>

namespace sluice::shm {

/// The policy that the invalid `text` was probably meant to be; empty if none is near.
[[nodiscard]] std::string policy_meant_by(const std::string& text);

/// The error message for a policy as a user wrote it, with a suggestion; empty if the policy is
/// valid.
[[nodiscard]] std::string check_policy(const std::string& text);

}  // namespace sluice::shm
