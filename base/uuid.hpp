#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice::base {

/// A device's UUID in the form of nvidia-smi: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx.
inline std::string format_uuid(const std::array<std::uint8_t, 16>& bytes) {
  constexpr std::array<char, 17> kDigits{"0123456789abcdef"};
  std::string text = "GPU-";
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += kDigits[bytes[i] >> 4U];
    text += kDigits[bytes[i] & 0xfU];
  }
  return text;
}

}  // namespace sluice::base
