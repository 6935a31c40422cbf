#include "tools/exec/environment.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/child.hpp"
#include "base/command_line.hpp"
#include "base/fd.hpp"
#include "tools/exec/program_file.hpp"

namespace sluice::tools {
namespace {

constexpr const char* kPreload = "LD_PRELOAD";
constexpr std::string_view kPreloadSeparators = ": ";
constexpr const char* kLibraryPath = "LD_LIBRARY_PATH";
constexpr std::string_view kLibraryPathSeparators = ":;";

std::string current(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr ? value : "";
}

void set_list(const char* variable, const std::string& list) {
  if (list.empty()) {
    unsetenv(variable);
  } else {
    setenv(variable, list.c_str(), 1);
  }
}

/// Makes the program that this process becomes find the simulated driver, or not find it.
void set_simulated_gpu(const base::Install& install, bool simulated) {
  const std::filesystem::path folder = install.simgpu_folder();
  const std::string list = current(kLibraryPath);
  set_list(kLibraryPath, simulated ? with_in_front(list, folder, kLibraryPathSeparators)
                                   : without(list, folder, kLibraryPathSeparators));
}

}  // namespace

std::string without(std::string_view list, const std::filesystem::path& path,
                    std::string_view separators) {
  std::string kept;
  while (!list.empty()) {
    const std::size_t end = list.find_first_of(separators);
    const std::string_view entry = list.substr(0, end);
    list.remove_prefix(end == std::string_view::npos ? list.size() : end + 1);
    if (entry.empty() || entry == path.native()) continue;
    if (!kept.empty()) kept += ':';
    kept += entry;
  }
  return kept;
}

std::string with_in_front(std::string_view list, const std::filesystem::path& path,
                          std::string_view separators) {
  const std::string rest = without(list, path, separators);
  return rest.empty() ? path.native() : path.native() + ":" + rest;
}

std::string preload_with_interposer(const base::Install& install) {
  const std::filesystem::path library = install.interposer();
  if (!std::filesystem::exists(library)) {
    throw base::RunError(library.string() + " is missing; build or install it again");
  }
  if (library.native().find_first_of(kPreloadSeparators) != std::string::npos) {
    throw base::RunError("LD_PRELOAD cannot name a path with a blank or a colon: '" +
                         library.string() + "'; install elsewhere");
  }
  return with_in_front(current(kPreload), library, kPreloadSeparators);
}

std::string passed_by(const base::Install& install, const std::string& preload) {
  std::ifstream system("/etc/ld.so.preload");
  std::string list = preload + " " + std::string(std::istreambuf_iterator<char>(system), {});
  std::replace(list.begin(), list.end(), ':', ' ');
  std::istringstream names(list);
  for (std::string name; names >> name;) {
    const bool ours = std::filesystem::path(name).filename() == install.interposer().filename();
    const base::Fd file(ours ? -1 : open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file && defines_symbol(file.get(), "cuLaunchKernel")) return name;
  }
  return {};
}

void remove_interposer(const base::Install& install) {
  set_list(kPreload, without(current(kPreload), install.interposer(), kPreloadSeparators));
}

void allow_preload_before_asan() {
  constexpr const char* kOptions = "ASAN_OPTIONS";
  constexpr std::string_view kAllowed = "verify_asan_link_order=0";
  std::string options = current(kOptions);
  if (options.find(kAllowed) != std::string::npos) return;
  if (!options.empty()) options += ':';
  setenv(kOptions, (options + std::string(kAllowed)).c_str(), 1);
}

void use_simulated_gpu(const base::Install& install) {
  const std::filesystem::path driver = install.simgpu_folder() / "libcuda.so.1";
  if (!std::filesystem::exists(driver)) {
    throw base::RunError("the simulated GPU is missing, build or install it again: " +
                         driver.string());
  }
  set_simulated_gpu(install, true);
}

void use_real_gpu(const base::Install& install) {
  set_simulated_gpu(install, false);
  const base::Captured answer = base::capture({install.subcommand("gpus"), "--gpu", "real"});
  if (answer.exit_code == 0) return;
  const std::string why = base::printed_error("sluice gpus", answer.err);
  throw base::RunError(why.empty() ? "sluice gpus could not be run; build or install it again"
                                   : why + "; --gpu sim takes the simulated one");
}

}  // namespace sluice::tools
