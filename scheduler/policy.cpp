#include "scheduler/policy.hpp"

#include <algorithm>
#include <cctype>

namespace sluice::scheduler {

std::string_view to_string(Policy policy) {
  switch (policy) {
    case Policy::kFifo:
      return "FIFO";
    case Policy::kBnst:
      return "BNST";
    case Policy::kOyst:
      return "OYST";
    case Policy::kDlir:
      return "DLIR";
    case Policy::kParaller:
      return "PARALLER";
    case Policy::kEdf:
      return "EDF";
  }
  return "?";
}

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
