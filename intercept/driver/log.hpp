#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace sluice::intercept {

enum class Level : int { kOff, kWarn, kInfo, kDebug };

/// One line on standard error, written with one write(2): `sluice[PID]: warning: text`. Allocates
/// nothing, takes no lock and keeps errno, because the watcher thread logs while the driver is
/// blocked. A line that cannot be written at once is dropped. Lines above the level of SLUICE_LOG
/// are not written.
class Line {
 public:
  explicit Line(Level level) noexcept;
  ~Line();
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  Line& operator<<(std::string_view text) noexcept;
  Line& operator<<(std::uint64_t number) noexcept;
  Line& operator<<(int number) noexcept;

 private:
  std::array<char, 512> text_;
  std::size_t size_ = 0;
  bool wanted_;
};

}  // namespace sluice::intercept
