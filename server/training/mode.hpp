#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sluice::server::training {

/// How inference and training share the GPU. docs/reference/server-modes.md has the table.
enum class Mode : std::uint8_t {
  kNormal,        ///< They contend: no gate, no order.
  kPark,          ///< The gate holds training while inference has work. Nothing is dropped.
  kTaskSwitchL1,  ///< A request makes training drop its micro-batch, free its memory and sleep.
  kTaskSwitchL2,  ///< The same, and training begins its epoch again.
  kTaskSwitchL3,  ///< A request kills training; it begins anew when inference is idle.
  kColocateL1,    ///< As kPark. For memory, training drops its micro-batch and shrinks.
  kColocateL2,    ///< As kPark. For memory, training shrinks at the end of its micro-batch.
};

inline constexpr std::array kModes{Mode::kNormal,       Mode::kTaskSwitchL1, Mode::kTaskSwitchL2,
                                   Mode::kTaskSwitchL3, Mode::kColocateL1,   Mode::kColocateL2,
                                   Mode::kPark};

[[nodiscard]] std::string_view to_string(Mode mode);
[[nodiscard]] std::optional<Mode> parse_mode(std::string_view name);
/// Empty, or why `name` is no mode. For CLI11.
[[nodiscard]] std::string check_mode(const std::string& name);

/// Whether inference has the GPU to itself while it has work.
[[nodiscard]] constexpr bool is_task_switch(Mode mode) {
  return mode == Mode::kTaskSwitchL1 || mode == Mode::kTaskSwitchL2 || mode == Mode::kTaskSwitchL3;
}

}  // namespace sluice::server::training
