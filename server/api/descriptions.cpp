#include "server/api/descriptions.hpp"

#include <algorithm>

#include "server/api/refusal.hpp"

namespace sluice::server::api {
namespace {

[[noreturn]] void refuse_model(const std::string& model, const std::string& version) {
  refuse("no model '" + model + "'" + (version.empty() ? "" : " of version '" + version + "'"),
         Code::kNotFound);
}

}  // namespace

const std::string& server_version() {
  static const std::string kVersion = SLUICE_VERSION;
  return kVersion;
}

const std::vector<std::string>& extensions() {
  static const std::vector<std::string> kExtensions = {"statistics", "model_configuration",
                                                       "model_repository", "schedule_policy",
                                                       "binary_tensor_data"};
  return kExtensions;
}

ModelMetadata model_metadata(const Service& service, const std::string& model,
                             const std::string& version) {
  auto metadata = service.metadata(model, version);
  if (metadata) return std::move(*metadata);
  for (const RepositoryEntry& entry : service.repository()) {
    if (entry.name != model || !(version.empty() || entry.version == version)) continue;
    if (entry.state == "READY") continue;
    refuse("model '" + model + "' is " + entry.state + ": " + entry.reason, Code::kUnavailable);
  }
  refuse_model(model, version);
}

bool is_known(const Service& service, const std::string& model) {
  const auto entries = service.repository();
  return std::any_of(entries.begin(), entries.end(),
                     [&](const auto& entry) { return entry.name == model; });
}

std::vector<ModelStatistics> model_statistics(const Service& service, const std::string& model,
                                              const std::string& version) {
  auto statistics = service.statistics(model);
  if (!statistics) refuse_model(model, version);
  if (version.empty()) return std::move(*statistics);
  std::erase_if(*statistics, [&](const auto& entry) { return entry.version != version; });
  if (statistics->empty()) refuse_model(model, version);
  return std::move(*statistics);
}

std::vector<RepositoryEntry> repository_index(const Service& service, bool only_ready) {
  auto entries = service.repository();
  if (only_ready) std::erase_if(entries, [](const auto& entry) { return entry.state != "READY"; });
  return entries;
}

std::vector<std::int64_t> shape_of(const ModelMetadata& model, const engine::TensorSpec& spec) {
  std::vector<std::int64_t> shape = spec.shape;
  if (model.max_batch_size > 0) shape.insert(shape.begin(), -1);
  return shape;
}

std::string config_type(engine::DataType type) {
  if (type == engine::DataType::kBytes) return "TYPE_STRING";
  return "TYPE_" + std::string(engine::to_string(type));
}

void check_load_parameter(const std::string& name) {
  if (name == "config" || name.starts_with("file:")) {
    refuse(
        "parameter '" + name + "': a load with another configuration or other files is not served",
        Code::kUnimplemented);
  }
}

}  // namespace sluice::server::api
