#pragma once
#include <string>
#include <vector>

namespace sluice::engine {

/// A name of an entry for each recorded kernel: `sluice_spin_` and the recorded name made an
/// identifier, cut to 100 characters, and numbered from the second of one name on. All differ; the
/// same names give the same ones, so that the driver finds what it compiled before.
[[nodiscard]] std::vector<std::string> spin_entry_names(const std::vector<std::string>& recorded);

/// PTX text of a module with `sluice_spin` and, under each of these names, the same kernel. The
/// largest of the traces here makes 199 entries, 71 KB, for which ptxas takes 0.3 s (sm_90).
[[nodiscard]] std::string spin_module(const std::vector<std::string>& entries);

}  // namespace sluice::engine
