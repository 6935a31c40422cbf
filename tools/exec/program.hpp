#pragma once
#include <string>

namespace sluice::tools {

/// The file that execvp would run for `name`. Looked up beforehand, so that a misspelt program is
/// reported before a controller is started for it. Throws base::UsageError.
std::string find_program(const std::string& name);

}  // namespace sluice::tools
