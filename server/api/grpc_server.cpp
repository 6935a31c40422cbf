#include "server/api/grpc_server.hpp"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <cstdlib>
#include <mutex>

#include "base/error.hpp"
#include "server/api/colserve_published.grpc.pb.h"
#include "server/api/colserve_service.hpp"
#include "server/api/infer_call.hpp"
#include "server/api/kserve_service.hpp"
#include "server/api/workers.hpp"

namespace sluice::server::api {
namespace {

std::string endpoint(const GrpcServer::Options& options) {
  const bool ipv6 = options.address.find(':') != std::string::npos;
  return (ipv6 ? "[" + options.address + "]" : options.address) + ":" +
         std::to_string(options.port);
}

/// gRPC reports to stderr what the caller learns anyway, such as a port in use. protobuf writes a
/// line for each damaged message, so clients could fill a log. GRPC_VERBOSITY brings the lines
/// back.
void silence_libraries() {
  if (std::getenv("GRPC_VERBOSITY") != nullptr) return;
  gpr_set_log_verbosity(static_cast<gpr_log_severity>(GPR_LOG_SEVERITY_ERROR + 1));
  google::protobuf::SetLogHandler(nullptr);
}

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

}  // namespace

struct GrpcServer::Parts {
  Parts(Service& service, const Options& options)
      : kserve(service, workers),
        colserve(service),
        published(colserve),
        generic(service, {options.read_timeout, options.write_timeout}) {}

  Workers workers;
  KserveService kserve;
  ColserveService colserve;
  PublishedColserve published;
  GenericCalls generic;
  int port = 0;
  std::once_flag stopped;
  std::unique_ptr<grpc::Server> server;
};

GrpcServer::GrpcServer(Service& service, const Options& options)
    : parts_(std::make_unique<Parts>(service, options)) {
  silence_libraries();
  grpc::ServerBuilder builder;
  builder.AddListeningPort(endpoint(options), grpc::InsecureServerCredentials(), &parts_->port);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_request_bytes));
  // A message is counted when it is complete; until then gRPC holds its bytes.
  builder.SetResourceQuota(grpc::ResourceQuota().Resize(options.max_arriving_bytes));
  // Otherwise a second server on the same port would get half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Finds clients whose machine is gone, and so ends their calls.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             static_cast<int>(options.idle_timeout.count()));
  builder.RegisterService(&parts_->kserve);
  builder.RegisterService(&parts_->colserve);
  builder.RegisterService(&parts_->published);
  builder.RegisterCallbackGenericService(&parts_->generic);
  parts_->server = builder.BuildAndStart();
  if (!parts_->server || parts_->port == 0) {
    throw base::RunError("cannot listen on " + endpoint(options) +
                         " for gRPC: is the port in use, or the address not of this machine?");
  }
}

GrpcServer::~GrpcServer() { stop(std::chrono::milliseconds(0)); }

int GrpcServer::port() const { return parts_->port; }

void GrpcServer::stop(std::chrono::milliseconds grace) {
  std::call_once(parts_->stopped, [&] {
    parts_->server->Shutdown(std::chrono::system_clock::now() + grace);
    parts_->server->Wait();
  });
}

}  // namespace sluice::server::api
