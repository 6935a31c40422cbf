// What a program says that lacks an optional part of the build.
#pragma once

#include <string>

#include "base/error.hpp"

namespace sluice::base {

/// `fetch` is the command that gets the part.
[[nodiscard]] inline UsageError built_without(const std::string& part, const std::string& fetch) {
  return UsageError("built without " + part + ", as packages are; in a checkout: " + fetch +
                    " && ./x build");
}

}  // namespace sluice::base
