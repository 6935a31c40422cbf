#include "shm/policy.hpp"

#include <array>
#include <charconv>

namespace sluice::shm {
namespace {

struct Form {
  std::string_view name;
  PolicyKind kind;
  bool spaced;
};

constexpr std::string_view kMicroseconds = "us";

constexpr std::array<Form, 5> kForms{{{"none", PolicyKind::kNone, false},
                                      {"gate", PolicyKind::kGate, false},
                                      {"sync", PolicyKind::kSync, true},
                                      {"event", PolicyKind::kEvent, true},
                                      {"device", PolicyKind::kDevice, true}}};

}  // namespace

std::optional<Policy> parse_policy(std::string_view text) noexcept {
  const std::size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  for (const Form& form : kForms) {
    if (form.name != name) continue;
    if (!form.spaced) {
      if (colon != std::string_view::npos) return std::nullopt;
      return Policy{form.kind};
    }
    if (colon == std::string_view::npos) return std::nullopt;
    std::string_view digits = text.substr(colon + 1);
    const bool is_time = form.kind == PolicyKind::kDevice && digits.ends_with(kMicroseconds);
    if (is_time) digits.remove_suffix(kMicroseconds.size());
    std::uint32_t count = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), count);
    if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
    if (count < 1 || count > Spacing::kMax) return std::nullopt;
    return Policy{form.kind, is_time ? Spacing::microseconds(count) : Spacing::launches(count)};
  }
  return std::nullopt;
}

std::string to_string(const Policy& policy) {
  for (const Form& form : kForms) {
    if (form.kind != policy.kind) continue;
    std::string text(form.name);
    if (form.spaced) text += ":" + std::to_string(policy.spacing.count);
    if (policy.spacing.is_time()) text += kMicroseconds;
    return text;
  }
  return "unknown";
}

}  // namespace sluice::shm
