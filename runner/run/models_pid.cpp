#include "runner/run/models_pid.hpp"

#include <nlohmann/json.hpp>

namespace sluice::runner {

std::string models_pid_text(const std::vector<std::pair<std::string, pid_t>>& models) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [name, pid] : models) list.push_back(nlohmann::json::array({name, pid}));
  return list.dump(4);
}

}  // namespace sluice::runner
