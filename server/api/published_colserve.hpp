#pragma once
#include "server/api/colserve_published.grpc.pb.h"
#include "server/api/colserve_service.hpp"

namespace sluice::server::api {

/// The published calls under their published name: clients call /ColServe/..., because the
/// published proto file has no package. Each call goes to `calls`, which must live longer.
class PublishedColserve final : public ::ColServe::CallbackService {
 public:
  explicit PublishedColserve(colserve::ColServe::CallbackService& calls) : calls_(calls) {}

 private:
  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  Reactor* GetServerStatus(Context* context, const colserve::EmptyRequest* request,
                           colserve::ServerStatus* response) override {
    return calls_.GetServerStatus(context, request, response);
  }
  Reactor* Shutdown(Context* context, const colserve::EmptyRequest* request,
                    colserve::EmptyRequest* response) override {
    return calls_.Shutdown(context, request, response);
  }
  Reactor* Inference(Context* context, const colserve::InferRequest* request,
                     colserve::InferResult* response) override {
    return calls_.Inference(context, request, response);
  }
  Reactor* Train(Context* context, const colserve::TrainRequest* request,
                 colserve::TrainResult* response) override {
    return calls_.Train(context, request, response);
  }

  colserve::ColServe::CallbackService& calls_;
};

}  // namespace sluice::server::api
