#include "server/training/mode.hpp"

namespace sluice::server::training {

std::string_view to_string(Mode mode) {
  switch (mode) {
    case Mode::kNormal:
      return "normal";
    case Mode::kPark:
      return "park";
    case Mode::kTaskSwitchL1:
      return "task-switch-l1";
    case Mode::kTaskSwitchL2:
      return "task-switch-l2";
    case Mode::kTaskSwitchL3:
      return "task-switch-l3";
    case Mode::kColocateL1:
      return "colocate-l1";
    case Mode::kColocateL2:
      return "colocate-l2";
  }
  return "?";
}

std::optional<Mode> parse_mode(std::string_view name) {
  for (const Mode mode : kModes) {
    if (to_string(mode) == name) return mode;
  }
  return std::nullopt;
}

std::string check_mode(const std::string& name) {
  if (parse_mode(name)) return "";
  std::string allowed;
  for (const Mode mode : kModes) {
    allowed += (allowed.empty() ? "" : ", ") + std::string(to_string(mode));
  }
  return "found '" + name + "', allowed: " + allowed;
}

}  // namespace sluice::server::training
