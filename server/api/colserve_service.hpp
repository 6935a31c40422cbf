#pragma once
#include <memory>

#include "server/api/access.hpp"
#include "server/api/activity.hpp"
#include "server/api/colserve.grpc.pb.h"
#include "server/api/generic_calls.hpp"
#include "server/service/service.hpp"

namespace sluice::server::api {

/// Answers one Inference of the published server. service, activity: must live longer.
[[nodiscard]] std::unique_ptr<GenericCall::Handler> inference_call(Service& service,
                                                                   Activity& activity,
                                                                   GenericCall& call);

/// The calls that are answered at once. service: must live longer.
[[nodiscard]] GenericCalls::Methods colserve_methods(const Service& service);

/// The control calls of the published server, and our additions to them. GenericCalls serves the
/// others.
class ColserveService final
    : public colserve::ColServe::WithGenericMethod_GetServerStatus<
          colserve::ColServe::WithGenericMethod_Inference<
              colserve::ColServe::WithGenericMethod_Status<colserve::ColServe::Service>>> {
 public:
  ColserveService(server::Service& service, const Access& access)
      : served_(service), access_(access) {}

 private:
  using Context = grpc::ServerContext;

  grpc::Status Shutdown(Context* context, const colserve::EmptyRequest* request,
                        colserve::EmptyRequest* response) override;
  grpc::Status Train(Context* context, const colserve::TrainRequest* request,
                     colserve::TrainResult* response) override;
  grpc::Status TrainStop(Context* context, const colserve::TrainRequest* request,
                         colserve::TrainResult* response) override;
  grpc::Status SetScheduler(Context* context, const colserve::SchedulerRequest* request,
                            colserve::SchedulerResult* response) override;

  /// Whether the call may be made.
  grpc::Status checked(Context& context, Right right) const;

  server::Service& served_;  // The base class has a Service of its own.
  const Access& access_;
};

}  // namespace sluice::server::api
