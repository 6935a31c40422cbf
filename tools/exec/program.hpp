#pragma once
#include <string>

#include "base/install.hpp"

namespace sluice::tools {

/// The file that execvp would run for `name`, else an example program of this installation. Throws
/// base::UsageError. The search comes first, so that a misspelt name starts no controller.
std::string find_program(const base::Install& install, const std::string& name);

}  // namespace sluice::tools
