#pragma once
#include <cstdint>
#include <string_view>

namespace sluice::shm {

/// A number from 1 to `most` without a sign; 0 for any other text.
[[nodiscard]] std::uint32_t number_in(std::string_view digits, std::uint32_t most) noexcept;

/// A whole number of `us` or `ms`, in microseconds, from 1 to `most_us`; 0 for any other text.
[[nodiscard]] std::uint32_t us_in(std::string_view text, std::uint32_t most_us) noexcept;

}  // namespace sluice::shm
