#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "base/install.hpp"

/// What a process's environment must say for the interposer and the simulated GPU to be loaded.
namespace sluice::tools {

/// `list`, a list of paths as LD_PRELOAD and LD_LIBRARY_PATH have it, with `path` in front and
/// nowhere else, so that nested `sluice exec` do not pile up. `separators` are what may stand
/// between paths.
[[nodiscard]] std::string with_in_front(std::string_view list, const std::filesystem::path& path,
                                        std::string_view separators);
/// `list` without `path`.
[[nodiscard]] std::string without(std::string_view list, const std::filesystem::path& path,
                                  std::string_view separators);

/// LD_PRELOAD with the interposer in front. Throws base::RunError if the library is missing, or in
/// a folder that LD_PRELOAD cannot name.
[[nodiscard]] std::string preload_with_interposer(const base::Install& install);

/// Takes the interposer out of this process's LD_PRELOAD.
void remove_interposer(const base::Install& install);

/// Makes this process's successor find the simulated driver, or not find it.
void set_simulated_gpu(const base::Install& install, bool simulated);

}  // namespace sluice::tools
