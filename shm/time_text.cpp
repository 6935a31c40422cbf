#include "shm/time_text.hpp"

#include <charconv>

namespace sluice::shm {

std::uint32_t number_in(std::string_view digits, std::uint32_t most) noexcept {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool whole = error == std::errc{} && end == digits.data() + digits.size();
  return whole && number <= most ? number : 0;
}

std::uint32_t us_in(std::string_view text, std::uint32_t most_us) noexcept {
  const bool ms = text.ends_with("ms");
  if (!ms && !text.ends_with("us")) return 0;
  const std::uint32_t unit = ms ? 1000 : 1;
  text.remove_suffix(2);
  return number_in(text, most_us / unit) * unit;
}

}  // namespace sluice::shm
