#include "shm/slice.hpp"

#include <charconv>

namespace sluice::shm {

std::optional<std::uint32_t> parse_slice(std::string_view text) noexcept {
  if (text == "auto") return kSliceAuto;
  if (text == "off") return kSliceOff;
  const bool ms = text.ends_with("ms");
  if (!ms && !text.ends_with("us")) return std::nullopt;
  text.remove_suffix(2);
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  if (number > kMostSliceUs) return std::nullopt;
  const std::uint32_t us = ms ? number * 1000 : number;
  return us >= kLeastSliceUs && us <= kMostSliceUs ? std::optional(us) : std::nullopt;
}

std::string slice_text(std::uint32_t slice) {
  if (slice == kSliceAuto) return "auto";
  if (slice == kSliceOff) return "off";
  if (slice % 1000 == 0) return std::to_string(slice / 1000) + "ms";
  return std::to_string(slice) + "us";
}

std::string check_slice(const std::string& text) {
  if (parse_slice(text)) return {};
  return "'" + text + "' is not a time slice: " + std::string(kSliceForms);
}

std::string_view slice_state_name(SliceState state) noexcept {
  switch (state) {
    case SliceState::kUnknown:
      return "unknown";
    case SliceState::kDriver:
      return "driver";
    case SliceState::kShort:
      return "short";
    case SliceState::kLong:
      return "long";
    case SliceState::kLearning:
      return "learning";
    case SliceState::kHostBound:
      return "host-bound";
    case SliceState::kSeveral:
      return "several";
    case SliceState::kOutside:
      return "outside";
    case SliceState::kOff:
      return "off";
    case SliceState::kNoGroup:
      return "no-group";
    case SliceState::kRefused:
      return "refused";
  }
  return "unknown";  // from a board that is damaged
}

}  // namespace sluice::shm
