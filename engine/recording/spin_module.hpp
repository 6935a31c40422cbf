#pragma once
#include <string>
#include <vector>

namespace sluice::engine {

/// The entry name of each recorded kernel: `sluice_spin_` and the recorded name as an identifier,
/// cut to 100 characters, with a number from the second use of a name on. All entry names differ.
/// The same recorded names give the same entry names, so that the driver finds its compiled module
/// in its cache.
[[nodiscard]] std::vector<std::string> spin_entry_names(const std::vector<std::string>& recorded);

/// PTX text of a module with `sluice_spin` and a copy of that kernel under each of the names. The
/// largest recording here makes 199 entries and 71 KB, for which ptxas takes 0.3 s (sm_90).
[[nodiscard]] std::string spin_module(const std::vector<std::string>& entries);

}  // namespace sluice::engine
