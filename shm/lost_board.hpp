#pragma once
#include <functional>
#include <string>

#include "base/fd.hpp"

namespace sluice::shm {

/// Looks for a board that had the name /dev/shm/`name` before the name was removed, among the open
/// files of the processes of this user. Opens the first one that `wanted` accepts, for reading and
/// writing; empty if there is none.
[[nodiscard]] base::Fd find_lost(const std::string& name, const std::function<bool(int)>& wanted);

}  // namespace sluice::shm
