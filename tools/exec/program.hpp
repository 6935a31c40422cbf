#pragma once
#include <string>

#include "base/install.hpp"

namespace sluice::tools {

/// The file that execvp would run for `name`, else an example program of this installation. Looked
/// up beforehand, so that a misspelt program is reported before a controller is started for it.
/// Throws base::UsageError.
std::string find_program(const base::Install& install, const std::string& name);

}  // namespace sluice::tools
