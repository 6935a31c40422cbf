#pragma once
#include <string>

#include "shm/policy.hpp"

namespace sluice::shm {

/// What is wrong with a policy as a user wrote it, what is allowed, and which policy was likely
/// meant; empty if nothing is wrong.
[[nodiscard]] std::string check_policy(const std::string& text);

/// The end of such a message: why parse_policy() refuses `text`, and the policy that was likely
/// meant, in `quote`s. Empty, or begins with "; ".
[[nodiscard]] std::string policy_hint(const std::string& text, char quote = '\'');

/// What to tell a user who wrote a policy that is valid and likely not what was meant; empty if
/// nothing.
[[nodiscard]] std::string policy_warning(const Policy& policy);

}  // namespace sluice::shm
