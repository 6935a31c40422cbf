#include "shm/slice.hpp"

#include "shm/time_text.hpp"

namespace sluice::shm {

std::optional<std::uint32_t> parse_slice(std::string_view text) noexcept {
  if (text == "auto") return kSliceAuto;
  if (text == "off") return kSliceOff;
  const std::uint32_t us = us_in(text, kMostSliceUs);
  return us >= kLeastSliceUs ? std::optional(us) : std::nullopt;
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
    case SliceState::kNotObeyed:
      return "not-obeyed";
    case SliceState::kWindows:
      return "windows";
  }
  return "unknown";  // from a board that is damaged
}

}  // namespace sluice::shm
