#include "shm/policy.hpp"

#include "shm/time_text.hpp"

namespace sluice::shm {
namespace {

constexpr std::string_view kMicroseconds = "us";
constexpr std::string_view kMilliseconds = "ms";
constexpr std::string_view kAhead = ",ahead:";
constexpr std::uint32_t kUsPerMs = 1000;

}  // namespace

std::optional<Policy> parse_policy(std::string_view text) noexcept {
  if (const std::size_t ahead = text.find(kAhead); ahead != std::string_view::npos) {
    std::optional<Policy> policy = parse_policy(text.substr(0, ahead));
    const std::uint32_t us = us_in(text.substr(ahead + kAhead.size()), Policy::kMaxAheadUs);
    if (!policy || !policy->spacing.is_time() || us == 0) return std::nullopt;
    policy->ahead_us = us;
    return policy;
  }
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  for (std::size_t i = 0; i < kPolicyKinds; ++i) {
    const auto kind = static_cast<PolicyKind>(i);
    const PolicyTraits traits = traits_of(kind);
    if (traits.name != name) continue;
    if (traits.between == Between::kNothing) {
      if (colon != std::string_view::npos) return std::nullopt;
      return Policy{kind};
    }
    if (colon == std::string_view::npos) return std::nullopt;
    std::string_view digits = text.substr(colon + 1);
    const bool is_time = traits.spaces_by_time && digits.ends_with(kMicroseconds);
    if (is_time) digits.remove_suffix(kMicroseconds.size());
    const std::uint32_t count = number_in(digits, Spacing::kMax);
    if (count == 0) return std::nullopt;
    return Policy{kind, is_time ? Spacing::microseconds(count) : Spacing::launches(count)};
  }
  return std::nullopt;
}

std::string to_string(const Policy& policy) {
  std::string text(traits_of(policy.kind).name);
  if (policy.is_spaced()) text += ":" + std::to_string(policy.spacing.count);
  if (policy.spacing.is_time()) text += kMicroseconds;
  if (policy.ahead_us == 0) return text;
  const bool ms = policy.ahead_us % kUsPerMs == 0;
  text += kAhead;
  text += std::to_string(ms ? policy.ahead_us / kUsPerMs : policy.ahead_us);
  text += ms ? kMilliseconds : kMicroseconds;
  return text;
}

}  // namespace sluice::shm
