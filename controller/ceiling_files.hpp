#pragma once
#include <optional>
#include <string>

namespace sluice::controller {

/// The lowest priority of the files in `folder` whose names are those of a cgroup in `cgroups`, at
/// any depth of any hierarchy. `cgroups`: the text of /proc/PID/cgroup. A file that has no priority
/// counts as 0. Nothing if there is no such file.
///
/// Root writes such a file, as Slurm's plugin does, to limit what the programs of a cgroup may ask
/// for. A program can choose names for cgroups inside its own, which can only lower its limit.
[[nodiscard]] std::optional<int> ceiling_of(const std::string& cgroups, const std::string& folder);

}  // namespace sluice::controller
