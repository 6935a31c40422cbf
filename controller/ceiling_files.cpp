#include "controller/ceiling_files.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

namespace sluice::controller {
namespace {

std::optional<int> ceiling_in(const std::string& file) {
  std::error_code error;
  if (!std::filesystem::exists(file, error) && !error) return std::nullopt;
  int most = 0;
  std::ifstream(file) >> most;
  return std::clamp(most, 0, 255);
}

}  // namespace

std::optional<int> ceiling_of(const std::string& cgroups, const std::string& folder) {
  std::optional<int> lowest;
  std::istringstream lines(cgroups);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream path(line);
    std::string name;
    std::getline(path, name, '/');  // the number and the controllers of the hierarchy
    while (std::getline(path, name, '/')) {
      if (name.empty() || name == "." || name == "..") continue;
      const std::optional<int> ceiling = ceiling_in(folder + "/" + name);
      if (ceiling) lowest = std::min(lowest.value_or(255), *ceiling);
    }
  }
  return lowest;
}

}  // namespace sluice::controller
