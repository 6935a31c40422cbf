#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "shm/snapshot.hpp"

namespace sluice::tools {

/// What status_json() prints, for commands that add to it.
nlohmann::ordered_json status_object(const shm::Snapshot& snapshot, const std::string& session);

/// As it is printed: indented, with an end of line, valid whatever bytes a command has.
std::string json_text(const nlohmann::ordered_json& json);

}  // namespace sluice::tools
