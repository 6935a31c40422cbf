#include "shm/policy_text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "base/nearest.hpp"

namespace sluice::shm {
namespace {

/// More launches than anybody lets run between two waits: more likely microseconds without their
/// unit.
constexpr std::uint32_t kManyLaunches = 64;

/// The number at the front of what follows the colon, and what stands behind it.
struct Amount {
  std::optional<std::uint64_t> number;
  std::string unit;
};

Amount amount_of(const std::string& text) {
  Amount amount;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  std::uint64_t number = 0;
  const auto parsed = std::from_chars(begin, end, number);
  if (parsed.ec == std::errc{}) amount.number = number;
  amount.unit.assign(parsed.ptr, end);
  return amount;
}

/// Microseconds in one of these units.
std::optional<std::uint64_t> microseconds_per(const std::string& unit) {
  constexpr std::array<std::pair<const char*, std::uint64_t>, 2> kUnits{
      {{"ms", 1000}, {"s", 1'000'000}}};
  for (const auto& [name, us] : kUnits) {
    if (unit == name) return us;
  }
  return std::nullopt;
}

/// The policy that was likely meant; empty if none is near.
std::string meant_by(const std::string& text) {
  static const std::vector<std::string> kNames{"none", "gate", "sync", "event", "device"};
  const std::size_t colon = text.find(':');
  const std::string name = base::nearest(text.substr(0, colon), kNames);
  if (name.empty()) return {};
  // The user's own N comes first, if it is valid.
  const std::string own = colon == std::string::npos ? "" : text.substr(colon);
  const Amount amount = amount_of(own.empty() ? own : own.substr(1));
  const auto factor = microseconds_per(amount.unit);
  const std::string in_us =
      factor && amount.number ? ":" + std::to_string(*amount.number * *factor) + "us" : own;
  for (const std::string& n :
       {own, in_us, std::string(), std::string(":200us"), std::string(":4")}) {
    if (parse_policy(name + n)) return name + n;
  }
  return {};
}

/// What is wrong with the part behind the colon of a policy that takes one.
std::string fault_of_amount(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos) return {};
  const Amount amount = amount_of(text.substr(colon + 1));
  const bool device = text.starts_with("device:");
  if (device && (amount.unit == "ns" || microseconds_per(amount.unit))) return "the unit is us";
  if (!amount.number || !(amount.unit.empty() || (device && amount.unit == "us"))) return {};
  const char* letter = amount.unit.empty() ? "N" : "T";
  if (*amount.number < 1) return std::string(letter) + " is at least 1";
  if (*amount.number > Spacing::kMax) {
    return std::string(letter) + " is at most " + std::to_string(Spacing::kMax);
  }
  return {};
}

}  // namespace

std::string check_policy(const std::string& text) {
  if (parse_policy(text)) return {};
  return "'" + text + "' is not a policy: " + std::string(kPolicyForms) + policy_hint(text);
}

std::string policy_hint(const std::string& text, char quote) {
  const std::string fault = fault_of_amount(text);
  const std::string meant = meant_by(text);
  std::string hint = fault.empty() ? "" : "; " + fault;
  if (!meant.empty()) hint += std::string("; did you mean ") + quote + meant + quote + "?";
  return hint;
}

std::string policy_warning(const Policy& policy) {
  if (!policy.waits_on_device() || policy.spacing.is_time() ||
      policy.spacing.count <= kManyLaunches)
    return {};
  const std::string text = to_string(policy);
  return text + " waits once in " + std::to_string(policy.spacing.count) +
         " launches; did you mean " + text + "us (microseconds)?";
}

}  // namespace sluice::shm
