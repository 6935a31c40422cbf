#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "server/service/service.hpp"

/// What both protocols say about the server and its models. Throws Refusal.
namespace sluice::server::api {

inline constexpr const char* kServerName = "sluice";
inline constexpr const char* kBackend = "sluice";

[[nodiscard]] const std::string& server_version();
[[nodiscard]] const std::vector<std::string>& extensions();

/// The metadata of a model that is loaded in this version. An empty version: any.
[[nodiscard]] ModelMetadata model_metadata(const Service& service, const std::string& model,
                                           const std::string& version);

/// Whether the server has a model of this name, loaded or not.
[[nodiscard]] bool is_known(const Service& service, const std::string& model);

/// The statistics of a model in this version, or of all models if the name is empty.
[[nodiscard]] std::vector<ModelStatistics> model_statistics(const Service& service,
                                                            const std::string& model,
                                                            const std::string& version);

/// The entries of the repository; only_ready: those that can serve now.
[[nodiscard]] std::vector<RepositoryEntry> repository_index(const Service& service,
                                                            bool only_ready);

/// The shape of an input or output of `model`, with the batch dimension if there is one.
[[nodiscard]] std::vector<std::int64_t> shape_of(const ModelMetadata& model,
                                                 const engine::TensorSpec& spec);

/// The name of a data type in a model configuration, such as TYPE_FP32.
[[nodiscard]] std::string config_type(engine::DataType type);

/// Refuses the parameters of a load that replace the configuration or the files of a model.
void check_load_parameter(const std::string& name);

}  // namespace sluice::server::api
