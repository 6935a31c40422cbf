#include "scheduler/policy.hpp"

#include <algorithm>
#include <cctype>

namespace sluice::scheduler {

std::optional<Policy> parse_policy(std::string_view name) {
  const auto same = [](unsigned char upper, unsigned char given) {
    return upper == std::toupper(given);
  };
  for (const Policy policy : kPolicies) {
    if (std::ranges::equal(to_string(policy), name, same)) return policy;
  }
  return std::nullopt;
}

}  // namespace sluice::scheduler
