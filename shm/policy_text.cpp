#include "shm/policy_text.hpp"

#include <vector>

#include "base/nearest.hpp"
#include "shm/policy.hpp"

namespace sluice::shm {

std::string policy_meant_by(const std::string& text) {
  static const std::vector<std::string> kNames{"none", "gate", "sync", "event", "device"};
  const std::size_t colon = text.find(':');
  const std::string name = base::nearest(text.substr(0, colon), kNames);
  if (name.empty()) return {};
  // The user's own N comes first, if it is valid.
  const std::string own = colon == std::string::npos ? "" : text.substr(colon);
  for (const std::string& n : {own, std::string(), std::string(":200us"), std::string(":4")}) {
    if (parse_policy(name + n)) return name + n;
  }
  return {};
}

std::string check_policy(const std::string& text) {
  if (parse_policy(text)) return {};
  const std::string meant = policy_meant_by(text);
  return "'" + text + "' is not a policy: " + std::string(kPolicyForms) +
         (meant.empty() ? "" : "; did you mean '" + meant + "'?");
}

}  // namespace sluice::shm
