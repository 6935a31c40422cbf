#pragma once
#include <nlohmann/json.hpp>

#include "server/service/service.hpp"

/// The JSON forms of what descriptions.hpp says.
namespace sluice::server::api {

[[nodiscard]] nlohmann::json server_json();
[[nodiscard]] nlohmann::json metadata_json(const ModelMetadata& metadata);
[[nodiscard]] nlohmann::json config_json(const ModelMetadata& metadata);
[[nodiscard]] nlohmann::json statistics_json(const std::vector<ModelStatistics>& statistics);
[[nodiscard]] nlohmann::json index_json(const std::vector<RepositoryEntry>& entries);

}  // namespace sluice::server::api
