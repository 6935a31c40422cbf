#include "tools/exec/program.hpp"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "base/command_line.hpp"

namespace sluice::tools {
namespace {

namespace fs = std::filesystem;

bool runnable(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string find_program(const base::Install& install, const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (runnable(name)) return name;
    std::error_code ignored;
    throw base::UsageError(fs::exists(name, ignored) ? "'" + name + "' is not an executable file"
                                                     : "no such program: '" + name + "'");
  }
  const char* search = std::getenv("PATH");
  std::istringstream folders(search != nullptr ? search : "/usr/local/bin:/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const fs::path candidate = fs::path(folder.empty() ? "." : folder) / name;
    if (runnable(candidate)) return candidate;
  }
  const fs::path example = install.program(name);
  if (name.starts_with("sluice-example-") && runnable(example)) return example;
  throw base::UsageError("no such program: '" + name + "' (not in any folder of PATH)");
}

}  // namespace sluice::tools
