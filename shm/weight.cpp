#include "shm/weight.hpp"

#include "shm/time_text.hpp"

namespace sluice::shm {

std::optional<std::uint32_t> parse_weight(std::string_view text) noexcept {
  if (text == "none") return kNoWeight;
  const std::uint32_t weight = number_in(text, kMostWeight);
  return weight != 0 ? std::optional(weight) : std::nullopt;
}

std::string weight_text(std::uint32_t weight) {
  return weight == kNoWeight ? "none" : std::to_string(weight);
}

std::string check_weight(const std::string& text) {
  if (parse_weight(text)) return {};
  return "'" + text + "' is not a weight: " + std::string(kWeightForms);
}

}  // namespace sluice::shm
