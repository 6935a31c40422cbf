#include "tools/common/policy_text.hpp"

#include <array>
#include <string_view>

#include "shm/policy.hpp"
#include "tools/common/nearest.hpp"

namespace sluice::tools {
namespace {

/// With the user's own N where there is one that will do. Empty if no policy is near.
std::string meant_by(const std::string& text) {
  constexpr std::array<std::string_view, 5> kNames{"none", "gate", "sync", "event", "device"};
  const std::size_t colon = text.find(':');
  const std::string_view name = nearest(text.substr(0, colon), kNames);
  if (name.empty()) return {};
  for (const std::string& n : {colon == std::string::npos ? "" : text.substr(colon), std::string(),
                               std::string(":200us"), std::string(":4")}) {
    if (shm::parse_policy(std::string(name) + n)) return std::string(name) + n;
  }
  return {};
}

}  // namespace

std::string check_policy(const std::string& text) {
  if (shm::parse_policy(text)) return {};
  const std::string meant = meant_by(text);
  return "'" + text + "' is no policy: " + std::string(shm::kPolicyForms) +
         (meant.empty() ? "" : "; did you mean '" + meant + "'?");
}

}  // namespace sluice::tools
