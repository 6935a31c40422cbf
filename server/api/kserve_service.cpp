#include "server/api/kserve_service.hpp"

#include <google/protobuf/descriptor.h>

#include <functional>
#include <future>

#include "server/api/descriptions.hpp"
#include "server/api/grpc_status.hpp"
#include "server/api/refusal.hpp"
#include "server/api/unary_call.hpp"

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

void fill(const server::ModelMetadata& from, inference::ModelMetadataResponse& to) {
  to.set_name(from.name);
  to.set_platform(from.platform);
  for (const auto& version : from.versions) to.add_versions(version);
  for (const auto& input : from.inputs) fill(from, input, *to.add_inputs());
  for (const auto& output : from.outputs) fill(from, output, *to.add_outputs());
}

void fill(const RepositoryEntry& from, inference::RepositoryIndexResponse::ModelIndex& to) {
  to.set_name(from.name);
  to.set_version(from.version);
  to.set_state(from.state);
  to.set_reason(from.reason);
}

void fill_server(inference::ServerMetadataResponse& to) {
  to.set_name(kServerName);
  to.set_version(server_version());
  for (const std::string& extension : extensions()) to.add_extensions(extension);
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

GenericCalls::Methods kserve_methods(const Service& service) {
  using namespace inference;
  const auto path = [](const char* name) {
    return "/" + std::string(GRPCInferenceService::service_full_name()) + "/" + name;
  };
  GenericCalls::Methods methods;
  methods[path("ServerLive")] = unary<ServerLiveRequest, ServerLiveResponse>(
      service.memory(), Right::kProbe,
      [&service](const auto&, auto& to) { to.set_live(service.live()); });
  methods[path("ServerReady")] = unary<ServerReadyRequest, ServerReadyResponse>(
      service.memory(), Right::kProbe,
      [&service](const auto&, auto& to) { to.set_ready(service.ready()); });
  methods[path("ServerMetadata")] = unary<ServerMetadataRequest, ServerMetadataResponse>(
      service.memory(), Right::kUse, [](const auto&, auto& to) { fill_server(to); });
  methods[path("ModelReady")] = unary<ModelReadyRequest, ModelReadyResponse>(
      service.memory(), Right::kUse, [&service](const auto& of, auto& to) {
        to.set_ready(service.model_ready(of.name(), of.version()));
      });
  methods[path("ModelMetadata")] = unary<ModelMetadataRequest, ModelMetadataResponse>(
      service.memory(), Right::kUse, [&service](const auto& of, auto& to) {
        fill(model_metadata(service, of.name(), of.version()), to);
      });
  methods[path("ModelConfig")] = unary<ModelConfigRequest, ModelConfigResponse>(
      service.memory(), Right::kUse, [&service](const auto& of, auto& to) {
        fill_config(model_metadata(service, of.name(), of.version()), *to.mutable_config());
      });
  methods[path("ModelStatistics")] = unary<ModelStatisticsRequest, ModelStatisticsResponse>(
      service.memory(), Right::kUse, [&service](const auto& of, auto& to) {
        for (const auto& entry : model_statistics(service, of.name(), of.version())) {
          fill(entry, *to.add_model_stats());
        }
      });
  methods[path("RepositoryIndex")] = unary<RepositoryIndexRequest, RepositoryIndexResponse>(
      service.memory(), Right::kUse, [&service](const auto& of, auto& to) {
        for (const auto& entry : repository_index(service, of.ready()))
          fill(entry, *to.add_models());
      });
  return methods;
}

KserveService::KserveService(server::Service& service, Workers& workers, const Access& access)
    : served_(service), workers_(workers), access_(access) {
  const auto* const all = google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(
      inference::GRPCInferenceService::service_full_name());
  for (int i = 0; i < all->method_count(); ++i) {
    const std::string& name = all->method(i)->name();
    if (name != "RepositoryModelLoad" && name != "RepositoryModelUnload") MarkMethodGeneric(i);
  }
}

grpc::Status KserveService::run(Context& context, const std::function<void()>& check,
                                const std::function<server::Status()>& act) {
  server::Status status = check_access(access_, Right::kControl, context);
  try {
    if (!status.ok()) return to_grpc(status, context);
    check();
    std::promise<server::Status> done;
    status = workers_.post([&] { done.set_value(act()); });
    if (status.ok()) status = done.get_future().get();
  } catch (const Refusal& refusal) {
    status = refusal.status;
  }
  return to_grpc(status, context);
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
