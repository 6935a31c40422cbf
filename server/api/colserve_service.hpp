#pragma once
#include "server/api/access.hpp"
#include "server/api/activity.hpp"
#include "server/api/colserve.grpc.pb.h"
#include "server/service/service.hpp"

namespace sluice::server::api {

/// The calls of the published server, and our additions to them.
class ColserveService final : public colserve::ColServe::CallbackService {
 public:
  ColserveService(server::Service& service, const Access& access, Activity& activity)
      : served_(service), access_(access), activity_(activity) {}

 private:
  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  Reactor* GetServerStatus(Context* context, const colserve::EmptyRequest* request,
                           colserve::ServerStatus* response) override;
  Reactor* Shutdown(Context* context, const colserve::EmptyRequest* request,
                    colserve::EmptyRequest* response) override;
  Reactor* Inference(Context* context, const colserve::InferRequest* request,
                     colserve::InferResult* response) override;
  Reactor* Train(Context* context, const colserve::TrainRequest* request,
                 colserve::TrainResult* response) override;
  Reactor* TrainStop(Context* context, const colserve::TrainRequest* request,
                     colserve::TrainResult* response) override;
  Reactor* SetScheduler(Context* context, const colserve::SchedulerRequest* request,
                        colserve::SchedulerResult* response) override;
  Reactor* Status(Context* context, const colserve::EmptyRequest* request,
                  colserve::StatusResult* response) override;

  /// The reactor of a call that may not be made; else null.
  Reactor* refused(Context& context, Right right) const;

  server::Service& served_;  // The base class has a Service of its own.
  const Access& access_;
  Activity& activity_;
};

}  // namespace sluice::server::api
