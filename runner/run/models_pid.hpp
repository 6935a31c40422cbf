#pragma once
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

namespace sluice::runner {

/// The file in the run's folder. --pid-file names a second one, for parsers that look elsewhere.
inline constexpr const char* kModelsPidFile = "models_pid.json";

/// The published text: a list of [name, pid], indent 4.
[[nodiscard]] std::string models_pid_text(const std::vector<std::pair<std::string, pid_t>>& models);

}  // namespace sluice::runner
