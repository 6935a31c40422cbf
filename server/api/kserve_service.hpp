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
                                inference::GRPCInferenceService::Service> {
 public:
  KserveService(server::Service& service, Workers& workers, const Access& access)
      : served_(service), workers_(workers), access_(access) {}

 private:
  using Context = grpc::ServerContext;

  /// Answers at once: OK, or the refusal that `fill` throws.
  grpc::Status answer(Context& context, Right right, const std::function<void()>& fill);
  /// Answers when `act`, which blocks, has ended. `check` may throw a refusal. Waits on a thread of
  /// gRPC's, which starts another one for the next call.
  grpc::Status run(Context& context, const std::function<void()>& check,
                   const std::function<server::Status()>& act);

  grpc::Status ServerLive(Context* context, const inference::ServerLiveRequest* request,
                          inference::ServerLiveResponse* response) override;
  grpc::Status ServerReady(Context* context, const inference::ServerReadyRequest* request,
                           inference::ServerReadyResponse* response) override;
  grpc::Status ModelReady(Context* context, const inference::ModelReadyRequest* request,
                          inference::ModelReadyResponse* response) override;
  grpc::Status ServerMetadata(Context* context, const inference::ServerMetadataRequest* request,
                              inference::ServerMetadataResponse* response) override;
  grpc::Status ModelMetadata(Context* context, const inference::ModelMetadataRequest* request,
                             inference::ModelMetadataResponse* response) override;
  grpc::Status ModelConfig(Context* context, const inference::ModelConfigRequest* request,
                           inference::ModelConfigResponse* response) override;
  grpc::Status ModelStatistics(Context* context, const inference::ModelStatisticsRequest* request,
                               inference::ModelStatisticsResponse* response) override;
  grpc::Status RepositoryIndex(Context* context, const inference::RepositoryIndexRequest* request,
                               inference::RepositoryIndexResponse* response) override;
  grpc::Status RepositoryModelLoad(Context* context,
                                   const inference::RepositoryModelLoadRequest* request,
                                   inference::RepositoryModelLoadResponse* response) override;
  grpc::Status RepositoryModelUnload(Context* context,
                                     const inference::RepositoryModelUnloadRequest* request,
                                     inference::RepositoryModelUnloadResponse* response) override;

  server::Service& served_;  // The base class has a Service of its own.
  Workers& workers_;
  const Access& access_;
};

}  // namespace sluice::server::api
