#pragma once
#include <functional>
#include <optional>
#include <string>

#include "server/api/access.hpp"
#include "server/api/kserve.grpc.pb.h"
#include "server/api/workers.hpp"
#include "server/service/service.hpp"

namespace sluice::server::api {

/// The calls of the KServe protocol except ModelInfer, which GenericCalls serves.
class KserveService final : public inference::GRPCInferenceService::WithGenericMethod_ModelInfer<
                                inference::GRPCInferenceService::CallbackService> {
 public:
  KserveService(server::Service& service, Workers& workers, const Access& access)
      : served_(service), workers_(workers), access_(access) {}

 private:
  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  /// Answers at once: OK, or the refusal that `fill` throws.
  Reactor* answer(Context& context, Right right, const std::function<void()>& fill);
  /// Answers when `act`, which blocks, has ended. `check` may throw a refusal.
  Reactor* run(Context& context, const std::function<void()>& check,
               std::function<server::Status()> act);

  Reactor* ServerLive(Context* context, const inference::ServerLiveRequest* request,
                      inference::ServerLiveResponse* response) override;
  Reactor* ServerReady(Context* context, const inference::ServerReadyRequest* request,
                       inference::ServerReadyResponse* response) override;
  Reactor* ModelReady(Context* context, const inference::ModelReadyRequest* request,
                      inference::ModelReadyResponse* response) override;
  Reactor* ServerMetadata(Context* context, const inference::ServerMetadataRequest* request,
                          inference::ServerMetadataResponse* response) override;
  Reactor* ModelMetadata(Context* context, const inference::ModelMetadataRequest* request,
                         inference::ModelMetadataResponse* response) override;
  Reactor* ModelConfig(Context* context, const inference::ModelConfigRequest* request,
                       inference::ModelConfigResponse* response) override;
  Reactor* ModelStatistics(Context* context, const inference::ModelStatisticsRequest* request,
                           inference::ModelStatisticsResponse* response) override;
  Reactor* RepositoryIndex(Context* context, const inference::RepositoryIndexRequest* request,
                           inference::RepositoryIndexResponse* response) override;
  Reactor* RepositoryModelLoad(Context* context,
                               const inference::RepositoryModelLoadRequest* request,
                               inference::RepositoryModelLoadResponse* response) override;
  Reactor* RepositoryModelUnload(Context* context,
                                 const inference::RepositoryModelUnloadRequest* request,
                                 inference::RepositoryModelUnloadResponse* response) override;

  server::Service& served_;  // The base class has a Service of its own.
  Workers& workers_;
  const Access& access_;
};

}  // namespace sluice::server::api
