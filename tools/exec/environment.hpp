#pragma once
#include <filesystem>
#include <string>
#include <string_view>

#include "base/install.hpp"

/// The environment variables that load the interposer and the simulated GPU into a process.
namespace sluice::tools {

/// `list`, a list of paths as in LD_PRELOAD and LD_LIBRARY_PATH, with `path` in front and nowhere
/// else, so that a nested `sluice exec` does not add it again. `separators` are the characters that
/// may separate paths.
[[nodiscard]] std::string with_in_front(std::string_view list, const std::filesystem::path& path,
                                        std::string_view separators);
/// `list` without `path`.
[[nodiscard]] std::string without(std::string_view list, const std::filesystem::path& path,
                                  std::string_view separators);

/// LD_PRELOAD with the interposer in front. Throws base::RunError if the library is missing, or if
/// LD_PRELOAD cannot name its folder.
[[nodiscard]] std::string preload_with_interposer(const base::Install& install);

/// A library that `preload`, a value of LD_PRELOAD, or /etc/ld.so.preload names and that hooks
/// launches, too. It sees none, because the interposer calls the driver itself. Empty: there is
/// none.
[[nodiscard]] std::string passed_by(const base::Install& install, const std::string& preload);

/// Removes the interposer from this process's LD_PRELOAD.
void remove_interposer(const base::Install& install);

/// A program that was built with -fsanitize=address, or a child that was, refuses to start behind
/// a library of LD_PRELOAD unless ASAN_OPTIONS allows it. Other programs do not read the variable.
void allow_preload_before_asan();

/// Makes the program that this process becomes find the simulated driver. Throws base::RunError if
/// that driver is missing.
void use_simulated_gpu(const base::Install& install);

/// Makes the program that this process becomes find the real driver. Throws base::RunError if that
/// driver has no device. `sluice gpus` asks the driver, in another process: an initialised driver
/// leaves threads and files behind.
void use_real_gpu(const base::Install& install);

}  // namespace sluice::tools
