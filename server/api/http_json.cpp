#include "server/api/http_json.hpp"

#include "server/api/descriptions.hpp"

namespace sluice::server::api {
namespace {

using nlohmann::json;

json tensors(const ModelMetadata& model, const std::vector<engine::TensorSpec>& specs) {
  json list = json::array();
  for (const auto& spec : specs) {
    list.push_back({{"name", spec.name},
                    {"datatype", engine::to_string(spec.type)},
                    {"shape", shape_of(model, spec)}});
  }
  return list;
}

json config_tensors(const std::vector<engine::TensorSpec>& specs) {
  json list = json::array();
  for (const auto& spec : specs) {
    list.push_back(
        {{"name", spec.name}, {"data_type", config_type(spec.type)}, {"dims", spec.shape}});
  }
  return list;
}

json duration(const ModelStatistics::Duration& from) {
  return {{"count", from.count}, {"ns", from.ns}};
}

}  // namespace

json server_json() {
  return {{"name", kServerName}, {"version", server_version()}, {"extensions", extensions()}};
}

json metadata_json(const ModelMetadata& metadata) {
  return {{"name", metadata.name},
          {"versions", metadata.versions},
          {"platform", metadata.platform},
          {"inputs", tensors(metadata, metadata.inputs)},
          {"outputs", tensors(metadata, metadata.outputs)}};
}

json config_json(const ModelMetadata& metadata) {
  return {{"name", metadata.name},
          {"platform", metadata.platform},
          {"backend", kBackend},
          {"version_policy", {{"latest", {{"num_versions", 1}}}}},
          {"max_batch_size", metadata.max_batch_size},
          {"dynamic_batching", json::object()},
          {"input", config_tensors(metadata.inputs)},
          {"output", config_tensors(metadata.outputs)}};
}

json statistics_json(const std::vector<ModelStatistics>& statistics) {
  json list = json::array();
  for (const ModelStatistics& from : statistics) {
    list.push_back({{"name", from.name},
                    {"version", from.version},
                    {"last_inference", from.last_inference_ms},
                    {"inference_count", from.inference_count},
                    {"execution_count", from.execution_count},
                    {"inference_stats",
                     {{"success", duration(from.success)},
                      {"fail", duration(from.fail)},
                      {"queue", duration(from.queue)},
                      {"compute_input", duration(from.compute_input)},
                      {"compute_infer", duration(from.compute_infer)},
                      {"compute_output", duration(from.compute_output)}}}});
  }
  return {{"model_stats", list}};
}

json index_json(const std::vector<RepositoryEntry>& entries) {
  json list = json::array();
  for (const RepositoryEntry& entry : entries) {
    list.push_back({{"name", entry.name},
                    {"version", entry.version},
                    {"state", entry.state},
                    {"reason", entry.reason}});
  }
  return list;
}

}  // namespace sluice::server::api
