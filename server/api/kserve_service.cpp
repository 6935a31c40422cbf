#include "server/api/kserve_service.hpp"

#include <functional>
#include <future>

#include "server/api/descriptions.hpp"
#include "server/api/grpc_status.hpp"
#include "server/api/refusal.hpp"

namespace sluice::server::api {
namespace {

void fill(const ModelStatistics::Duration& from, inference::StatisticDuration& to) {
  to.set_count(from.count);
  to.set_ns(from.ns);
}

void fill(const ModelStatistics& from, inference::ModelStatistics& to) {
  to.set_name(from.name);
  to.set_version(from.version);
  to.set_last_inference(from.last_inference_ms);
  to.set_inference_count(from.inference_count);
  to.set_execution_count(from.execution_count);
  auto& stats = *to.mutable_inference_stats();
  fill(from.success, *stats.mutable_success());
  fill(from.fail, *stats.mutable_fail());
  fill(from.queue, *stats.mutable_queue());
  fill(from.compute_input, *stats.mutable_compute_input());
  fill(from.compute_infer, *stats.mutable_compute_infer());
  fill(from.compute_output, *stats.mutable_compute_output());
}

void fill(const server::ModelMetadata& model, const engine::TensorSpec& from,
          inference::ModelMetadataResponse::TensorMetadata& to) {
  to.set_name(from.name);
  to.set_datatype(std::string(engine::to_string(from.type)));
  const auto shape = shape_of(model, from);
  to.mutable_shape()->Assign(shape.begin(), shape.end());
}

/// An input or an output of a configuration.
template <typename Tensor>
void fill_config(const engine::TensorSpec& from, Tensor& to) {
  inference::DataType type = inference::TYPE_INVALID;
  inference::DataType_Parse(config_type(from.type), &type);
  to.set_name(from.name);
  to.set_data_type(type);
  to.mutable_dims()->Assign(from.shape.begin(), from.shape.end());
}

void fill_config(const ModelMetadata& from, inference::ModelConfig& to) {
  to.set_name(from.name);
  to.set_platform(from.platform);
  to.set_backend(kBackend);
  to.set_max_batch_size(static_cast<std::int32_t>(from.max_batch_size));
  to.mutable_version_policy()->mutable_latest()->set_num_versions(1);
  to.mutable_dynamic_batching();
  for (const auto& input : from.inputs) fill_config(input, *to.add_input());
  for (const auto& output : from.outputs) fill_config(output, *to.add_output());
}

}  // namespace

grpc::Status KserveService::answer(Context& context, Right right,
                                   const std::function<void()>& fill) {
  server::Status status = check_access(access_, right, context);
  try {
    if (status.ok()) fill();
  } catch (const Refusal& refusal) {
    status = refusal.status;
  }
  return to_grpc(status, context);
}

grpc::Status KserveService::run(Context& context, const std::function<void()>& check,
                                const std::function<server::Status()>& act) {
  return answer(context, Right::kControl, [&] {
    check();
    std::promise<server::Status> done;
    server::Status status = workers_.post([&] { done.set_value(act()); });
    if (status.ok()) status = done.get_future().get();
    if (!status.ok()) throw Refusal{status};
  });
}

grpc::Status KserveService::ServerLive(Context* context,
                                       const inference::ServerLiveRequest* /*request*/,
                                       inference::ServerLiveResponse* response) {
  return answer(*context, Right::kProbe, [&] { response->set_live(served_.live()); });
}

grpc::Status KserveService::ServerReady(Context* context,
                                        const inference::ServerReadyRequest* /*request*/,
                                        inference::ServerReadyResponse* response) {
  return answer(*context, Right::kProbe, [&] { response->set_ready(served_.ready()); });
}

grpc::Status KserveService::ModelReady(Context* context,
                                       const inference::ModelReadyRequest* request,
                                       inference::ModelReadyResponse* response) {
  return answer(*context, Right::kUse, [&] {
    response->set_ready(served_.model_ready(request->name(), request->version()));
  });
}

grpc::Status KserveService::ServerMetadata(Context* context,
                                           const inference::ServerMetadataRequest* /*request*/,
                                           inference::ServerMetadataResponse* response) {
  return answer(*context, Right::kUse, [&] {
    response->set_name(kServerName);
    response->set_version(server_version());
    for (const std::string& extension : extensions()) response->add_extensions(extension);
  });
}

grpc::Status KserveService::ModelMetadata(Context* context,
                                          const inference::ModelMetadataRequest* request,
                                          inference::ModelMetadataResponse* response) {
  return answer(*context, Right::kUse, [&] {
    const auto metadata = model_metadata(served_, request->name(), request->version());
    response->set_name(metadata.name);
    response->set_platform(metadata.platform);
    for (const auto& version : metadata.versions) response->add_versions(version);
    for (const auto& input : metadata.inputs) fill(metadata, input, *response->add_inputs());
    for (const auto& output : metadata.outputs) fill(metadata, output, *response->add_outputs());
  });
}

grpc::Status KserveService::ModelConfig(Context* context,
                                        const inference::ModelConfigRequest* request,
                                        inference::ModelConfigResponse* response) {
  return answer(*context, Right::kUse, [&] {
    fill_config(model_metadata(served_, request->name(), request->version()),
                *response->mutable_config());
  });
}

grpc::Status KserveService::ModelStatistics(Context* context,
                                            const inference::ModelStatisticsRequest* request,
                                            inference::ModelStatisticsResponse* response) {
  return answer(*context, Right::kUse, [&] {
    for (const auto& entry : model_statistics(served_, request->name(), request->version())) {
      fill(entry, *response->add_model_stats());
    }
  });
}

grpc::Status KserveService::RepositoryIndex(Context* context,
                                            const inference::RepositoryIndexRequest* request,
                                            inference::RepositoryIndexResponse* response) {
  return answer(*context, Right::kUse, [&] {
    for (const auto& entry : repository_index(served_, request->ready())) {
      auto& to = *response->add_models();
      to.set_name(entry.name);
      to.set_version(entry.version);
      to.set_state(entry.state);
      to.set_reason(entry.reason);
    }
  });
}

grpc::Status KserveService::RepositoryModelLoad(
    Context* context, const inference::RepositoryModelLoadRequest* request,
    inference::RepositoryModelLoadResponse* /*response*/) {
  const auto check = [&] {
    for (const auto& [name, value] : request->parameters()) check_load_parameter(name);
  };
  return run(*context, check,
             [this, model = request->model_name()] { return served_.load(model); });
}

grpc::Status KserveService::RepositoryModelUnload(
    Context* context, const inference::RepositoryModelUnloadRequest* request,
    inference::RepositoryModelUnloadResponse* /*response*/) {
  return run(
      *context, [] {}, [this, model = request->model_name()] { return served_.unload(model); });
}

}  // namespace sluice::server::api
