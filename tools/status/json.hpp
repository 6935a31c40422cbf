#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "shm/snapshot.hpp"

namespace sluice::tools {

/// The object that status_json() prints, for commands that add to it.
nlohmann::ordered_json status_object(const shm::Snapshot& snapshot, const std::string& session);

/// The JSON as text, with a final newline. Valid JSON, whatever bytes a command contains.
std::string json_text(const nlohmann::ordered_json& json);

}  // namespace sluice::tools
