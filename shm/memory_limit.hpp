#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// The limit of a client's device memory that its user or the site chose: docs/reference/memory.md.
/// On the board and in messages it is a number of bytes, and 0 is no limit.
namespace sluice::shm {

/// Below this, a program would need more for its context, which does not count, than the limit
/// leaves it: most likely the unit is wrong.
inline constexpr std::uint64_t kLeastMemoryLimit = std::uint64_t{1} << 30U;
inline constexpr std::uint64_t kMostMemoryLimit = std::uint64_t{16} << 40U;

/// The forms that parse_memory_limit() accepts, for help and error messages.
inline constexpr std::string_view kMemoryLimitForms =
    "20GiB, 1.5GiB, 80GB (1GiB to 16TiB; KiB, MiB, GiB, TiB, kB, MB, GB, TB), none";

/// Whether parse_memory_limit() can return this limit. One from a message may be invalid.
[[nodiscard]] constexpr bool valid_memory_limit(std::uint64_t bytes) noexcept {
  return bytes == 0 || (bytes >= kLeastMemoryLimit && bytes <= kMostMemoryLimit);
}

/// Reads a limit without allocating; 0 for "none". Accepts no spaces and no signs, and at most
/// three digits behind the point; returns nothing for any other text.
[[nodiscard]] std::optional<std::uint64_t> parse_memory_limit(std::string_view text) noexcept;

/// The text that parse_memory_limit() reads back to the same limit, if it is valid.
[[nodiscard]] std::string memory_limit_text(std::uint64_t bytes);

/// What is wrong with a limit as a user wrote it, and what is allowed; empty if nothing is wrong.
[[nodiscard]] std::string check_memory_limit(const std::string& text);

}  // namespace sluice::shm
