#include "server/api/grpc_server.hpp"

#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/error.hpp"
#include "server/api/address.hpp"
#include "server/api/colserve_published.grpc.pb.h"
#include "server/api/colserve_service.hpp"
#include "server/api/generic_calls.hpp"
#include "server/api/grpc_status.hpp"
#include "server/api/grpc_tls.hpp"
#include "server/api/health.hpp"
#include "server/api/infer_call.hpp"
#include "server/api/kserve_service.hpp"
#include "server/api/lock_graph.hpp"
#include "server/api/workers.hpp"

namespace sluice::server::api {
namespace {

/// Of the headers of a call before gRPC ends its connection.
constexpr int kMostMetadataBytes = 1 << 20;
static_assert(kMostMetadataBytes > static_cast<int>(kMaxMetadataBytes));

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
class PublishedColserve final : public ::ColServe::WithGenericMethod_GetServerStatus<
                                    ::ColServe::WithGenericMethod_Inference<::ColServe::Service>> {
 public:
  explicit PublishedColserve(colserve::ColServe::Service& calls) : calls_(calls) {}

 private:
  using Context = grpc::ServerContext;

  grpc::Status Shutdown(Context* context, const colserve::EmptyRequest* request,
                        colserve::EmptyRequest* response) override {
    return calls_.Shutdown(context, request, response);
  }
  grpc::Status Train(Context* context, const colserve::TrainRequest* request,
                     colserve::TrainResult* response) override {
    return calls_.Train(context, request, response);
  }

  colserve::ColServe::Service& calls_;
};

}  // namespace

struct GrpcServer::Parts {
  Parts(Service& service, const Options& options)
      : tls(options.tls),
        access(options.access),
        kserve(service, workers, access),
        colserve(service, access),
        published(colserve),
        health(service),
        generic(service, access, {options.read_timeout, options.write_timeout}, methods(service)) {}

  GenericCalls::Methods methods(Service& service) {
    const auto infer = [this, &service](GenericCall& call) {
      return infer_call(service, activity, call);
    };
    const auto inference = [this, &service](GenericCall& call) {
      return inference_call(service, activity, call);
    };
    GenericCalls::Methods methods = {
        {kModelInfer, {Right::kUse, true, infer}},
        {"/colserve.ColServe/Inference", {Right::kUse, true, inference}},
        {"/ColServe/Inference", {Right::kUse, true, inference}},
        {Health::kCheck,
         {Right::kProbe, false, [this](GenericCall& call) { return health.check(call); }}},
        {Health::kWatch,
         {Right::kProbe, false, [this](GenericCall& call) { return health.watch(call); }}},
    };
    methods.merge(kserve_methods(service));
    methods.merge(colserve_methods(service));
    return methods;
  }

  GrpcTls tls;
  const Access access;
  Activity activity;
  Workers workers;
  KserveService kserve;
  ColserveService colserve;
  PublishedColserve published;
  Health health;
  GenericCalls generic;
  int port = 0;
  std::once_flag stopped;
  std::unique_ptr<grpc::Server> server;
};

GrpcServer::GrpcServer(Service& service, const Options& options)
    : parts_(std::make_unique<Parts>(service, options)) {
  silence_libraries();
  switch_off_lock_graph();
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  const std::string address = resolve_address(options.address, "grpc");
  const std::string endpoint = endpoint_text(address, options.port);
  grpc::ServerBuilder builder;
  builder.AddListeningPort(endpoint, parts_->tls.credentials(), &parts_->port);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_request_bytes));
  // A message is counted when it is complete; until then gRPC holds its bytes. A call of the
  // synchronous API has a thread, also while its client does not read the answer.
  constexpr int kMostThreads = 512;
  grpc::ResourceQuota quota;
  builder.SetResourceQuota(quota.Resize(options.max_arriving_bytes).SetMaxThreads(kMostThreads));
  // Otherwise a second server on the same port would get half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Beyond that, gRPC 1.51 ends all calls of the connection, which may be that of a proxy with many
  // clients. So calls are refused earlier, one by one (kMaxMetadataBytes), and this is far above
  // what proxies pass on. Not more: gRPC takes seconds for 16 MiB of tiny headers.
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMostMetadataBytes);
  // Finds clients whose machine is gone, and so ends their calls.
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 60'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS,
                             static_cast<int>(options.idle_timeout.count()));
  // gRPC by itself ends the connection of a client that pings more often than every 5 minutes.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  if (options.max_connection_age.count() > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_AGE_MS,
                               static_cast<int>(options.max_connection_age.count()));
  }
  builder.RegisterService(&parts_->kserve);
  builder.RegisterService(&parts_->colserve);
  builder.RegisterService(&parts_->published);
  parts_->generic.add_to(builder);
  {
    const SocketMode mode(address);
    parts_->server = builder.BuildAndStart();
  }
  if (!parts_->server || parts_->port == 0) {
    throw base::RunError("cannot listen on " + endpoint +
                         " for gRPC: is the port in use, or the address not of this machine?");
  }
  if (is_unix(address)) parts_->port = 0;
  parts_->generic.start();
}

GrpcServer::~GrpcServer() { stop(std::chrono::milliseconds(0)); }

int GrpcServer::port() const { return parts_->port; }

void GrpcServer::set_tls(const Tls& tls) { parts_->tls.set(tls); }

void GrpcServer::finish(std::chrono::steady_clock::time_point until) {
  using std::chrono::milliseconds;
  using std::chrono::steady_clock;
  constexpr milliseconds kQuiet{1000};
  const auto begin = steady_clock::now();
  const auto cut = until - std::min<steady_clock::duration>(kQuiet, (until - begin) / 2);
  while (!parts_->activity.quiet(kQuiet) && steady_clock::now() < cut) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  // What is left may never end, such as a client that watches grpc.health.v1.
  const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now());
  stop(std::clamp(left, milliseconds(0), kQuiet) + kQuiet);
}

void GrpcServer::stop(std::chrono::milliseconds grace) {
  std::call_once(parts_->stopped, [&] {
    parts_->server->Shutdown(std::chrono::system_clock::now() + grace);
    parts_->server->Wait();
    parts_->generic.end();
  });
}

}  // namespace sluice::server::api
