#pragma once
#include <functional>
#include <optional>
#include <string>

#include "server/api/access.hpp"
#include "server/api/generic_calls.hpp"
#include "server/api/kserve.grpc.pb.h"
#include "server/api/workers.hpp"
#include "server/service/service.hpp"

namespace sluice::server::api {

/// The calls of the KServe protocol that are answered at once. service: must live longer.
[[nodiscard]] GenericCalls::Methods kserve_methods(const Service& service);

/// The calls that block. GenericCalls serves the others.
class KserveService final : public inference::GRPCInferenceService::Service {
 public:
  KserveService(server::Service& service, Workers& workers, const Access& access);

 private:
  using Context = grpc::ServerContext;

  /// Answers when `act`, which blocks, has ended. `check` may throw a refusal. Waits on a thread of
  /// gRPC's, which starts another one for the next call.
  grpc::Status run(Context& context, const std::function<void()>& check,
                   const std::function<server::Status()>& act);

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
