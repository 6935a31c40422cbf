#include "grpc_server_test.hpp"

#include <grpcpp/impl/codegen/client_unary_call.h>
#include <grpcpp/support/sync_stream.h>

#include <cstring>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.hpp"
#include "raw_http.hpp"
#include "support/eventually.hpp"

namespace sluice::server::api {
namespace {

using grpc::StatusCode;
using test::eventually;
using namespace std::chrono_literals;

TEST_F(GrpcServerTest, AnswersAnInference) {
  auto request = echo_request();
  request.set_id("seven");
  ASSERT_TRUE(infer(request).ok());
  EXPECT_EQ(response_.model_name(), "echo");
  EXPECT_EQ(response_.model_version(), "1");
  EXPECT_EQ(response_.id(), "seven");
  ASSERT_EQ(response_.outputs_size(), 1);
  EXPECT_EQ(response_.outputs(0).datatype(), "INT32");
  EXPECT_EQ(response_.raw_output_contents(0), request.raw_input_contents(0));
}

// Large outputs are sent from the memory of the response, which must live until they have left.
TEST_F(GrpcServerTest, SendsLargeOutputs) {
  ASSERT_TRUE(infer(echo_request("big")).ok());
  ASSERT_EQ(response_.raw_output_contents(0).size(), 4'000'000U);
  float last = 0;
  std::memcpy(&last, response_.raw_output_contents(0).data() + 4 * 999'999, sizeof(last));
  EXPECT_EQ(last, 999'999.0F);
}

// A typed service would enter ModelInfer with the whole message: too late for an announcement.
TEST_F(GrpcServerTest, AnnouncesAtTheHeaders) {
  grpc::ClientContext context;
  context.AddMetadata("sluice-model", "echo");
  grpc::ByteBuffer message;
  grpc::CompletionQueue queue;
  // A raw stream sends its headers before its message.
  const auto stream = call("/inference.GRPCInferenceService/ModelInfer", context);
  ASSERT_TRUE(eventually([&] { return service_.announced().size() == 1; }));
  EXPECT_EQ(service_.announced()[0].model, "echo");
  EXPECT_TRUE(service_.requests().empty());
  stream->Write(echo_request());
  stream->WritesDone();
  EXPECT_TRUE(stream->Read(&response_));
  EXPECT_TRUE(stream->Finish().ok());
  ASSERT_EQ(service_.requests().size(), 1U);
  EXPECT_EQ(service_.requests()[0].announced, 1U);
}

TEST_F(GrpcServerTest, PassesParametersAndTheEarliestDeadline) {
  auto request = echo_request();
  (*request.mutable_parameters())["priority"].set_uint64_param(3);
  (*request.mutable_parameters())["timeout"].set_int64_param(2'000'000);
  (*request.mutable_parameters())["slo_ms"].set_double_param(500);
  ASSERT_TRUE(infer(request).ok());
  const auto first = service_.requests()[0];
  EXPECT_EQ(first.priority, 3U);
  EXPECT_EQ(first.deadline_ns - first.headers_ns, 500'000'000U);

  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 10s);
  ASSERT_TRUE(stub_->ModelInfer(&context, echo_request(), &response_).ok());
  const auto second = service_.requests()[1];
  EXPECT_GT(second.deadline_ns, second.headers_ns);
  EXPECT_LT(second.deadline_ns, second.headers_ns + 10'500'000'000U);

  ASSERT_TRUE(infer(echo_request()).ok());
  EXPECT_EQ(service_.requests()[2].deadline_ns, 0U);
}

TEST_F(GrpcServerTest, EachRefusalHasItsCode) {
  const std::map<Code, StatusCode> codes = {
      {Code::kInvalidArgument, StatusCode::INVALID_ARGUMENT},
      {Code::kNotFound, StatusCode::NOT_FOUND},
      {Code::kUnavailable, StatusCode::UNAVAILABLE},
      {Code::kResourceExhausted, StatusCode::RESOURCE_EXHAUSTED},
      {Code::kDeadlineExceeded, StatusCode::DEADLINE_EXCEEDED},
      {Code::kCancelled, StatusCode::CANCELLED},
      {Code::kUnimplemented, StatusCode::UNIMPLEMENTED},
      {Code::kInternal, StatusCode::INTERNAL}};
  for (const auto& [code, expected] : codes) {
    auto request = echo_request("failing");
    request.set_id(std::to_string(static_cast<int>(code)));
    const auto status = infer(request);
    EXPECT_EQ(status.error_code(), expected);
    EXPECT_EQ(status.error_message(), "as asked");
  }
}

// Prevents: a message that repeats a long name of the client, which then sees another code.
TEST_F(GrpcServerTest, TheMessageOfARefusalIsShort) {
  auto request = echo_request();
  request.mutable_inputs(0)->set_datatype(std::string(100'000, 'x'));
  const grpc::Status status = infer(request);
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT) << status.error_message();
  EXPECT_LT(status.error_message().size(), 2000U);
}

TEST_F(GrpcServerTest, SaysWhenToRetry) {
  grpc::ClientContext context;
  EXPECT_EQ(stub_->ModelInfer(&context, echo_request("refusing"), &response_).error_code(),
            StatusCode::RESOURCE_EXHAUSTED);
  const auto& trailers = context.GetServerTrailingMetadata();
  ASSERT_EQ(trailers.count("retry-after-ms"), 1U);
  EXPECT_EQ(trailers.find("retry-after-ms")->second, "1500");
}

TEST_F(GrpcServerTest, ACancelledCallCancelsItsRequest) {
  grpc::ClientContext context;
  std::jthread cancelling([&] {
    EXPECT_TRUE(eventually([&] { return service_.unanswered() == 1; }));
    context.TryCancel();
  });
  EXPECT_EQ(stub_->ModelInfer(&context, echo_request("stuck"), &response_).error_code(),
            StatusCode::CANCELLED);
  EXPECT_TRUE(eventually([&] { return service_.cancelled() == 1; }));
}

TEST_F(GrpcServerTest, ACallPastItsDeadlineCancelsItsRequest) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 50ms);
  EXPECT_EQ(stub_->ModelInfer(&context, echo_request("stuck"), &response_).error_code(),
            StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(eventually([&] { return service_.cancelled() == service_.requests().size(); }));
}

// Requests are cancelled while infer() returns, too.
TEST_F(GrpcServerTest, ManyCallsAreCancelledAtAnyTime) {
  std::vector<std::jthread> clients;
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (int i = 0; i < 100; ++i) {
        grpc::ClientContext context;
        context.set_deadline(std::chrono::system_clock::now() +
                             std::chrono::microseconds(100 * ((i + client) % 20)));
        inference::ModelInferResponse response;
        (void)stub_->ModelInfer(&context, echo_request(i % 2 == 0 ? "stuck" : "slow"), &response);
      }
    });
  }
  clients.clear();
  EXPECT_TRUE(eventually([&] { return service_.unanswered() == 0; }));
}

TEST_F(GrpcServerTest, RefusesWhatItDoesNotServe) {
  grpc::ClientContext context;
  const auto stream = call("/inference.GRPCInferenceService/ModelStreamInfer", context);
  const auto status = stream->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::UNIMPLEMENTED);
  EXPECT_EQ(status.error_message(),
            "/inference.GRPCInferenceService/ModelStreamInfer is not served");
}

TEST_F(GrpcServerTest, AnnouncesOnlyInferences) {
  grpc::ClientContext context;
  inference::ServerLiveResponse live;
  ASSERT_TRUE(stub_->ServerLive(&context, {}, &live).ok());
  EXPECT_TRUE(live.live());
  EXPECT_TRUE(service_.announced().empty());
}

TEST_F(GrpcServerTest, DescribesNoModelThatIsNotThere) {
  grpc::ClientContext first;
  inference::ModelConfigRequest request;
  request.set_name("add");
  request.set_version("2");
  inference::ModelConfigResponse config;
  EXPECT_EQ(stub_->ModelConfig(&first, request, &config).error_code(), StatusCode::NOT_FOUND);

  grpc::ClientContext second;
  inference::ModelReadyRequest ready;
  ready.set_name("none");
  inference::ModelReadyResponse answer;
  ASSERT_TRUE(stub_->ModelReady(&second, ready, &answer).ok()) << "a client polls before a load";
  EXPECT_FALSE(answer.ready());
}

TEST_F(GrpcServerTest, LoadsAndUnloads) {
  inference::RepositoryModelUnloadRequest unload;
  unload.set_model_name("echo");
  inference::RepositoryModelUnloadResponse unloaded;
  grpc::ClientContext first;
  ASSERT_TRUE(stub_->RepositoryModelUnload(&first, unload, &unloaded).ok());
  EXPECT_EQ(infer(echo_request()).error_code(), StatusCode::UNAVAILABLE);
  inference::RepositoryModelLoadRequest load;
  load.set_model_name("echo");
  inference::RepositoryModelLoadResponse loaded;
  grpc::ClientContext second;
  ASSERT_TRUE(stub_->RepositoryModelLoad(&second, load, &loaded).ok());
  EXPECT_TRUE(infer(echo_request()).ok());
  grpc::ClientContext third;
  (*load.mutable_parameters())["config"].set_string_param("{}");
  EXPECT_EQ(stub_->RepositoryModelLoad(&third, load, &loaded).error_code(),
            StatusCode::UNIMPLEMENTED);
  grpc::ClientContext fourth;
  unload.set_model_name("none");
  EXPECT_EQ(stub_->RepositoryModelUnload(&fourth, unload, &unloaded).error_code(),
            StatusCode::NOT_FOUND);
  grpc::ClientContext fifth;
  load.Clear();
  load.set_model_name("none");
  EXPECT_EQ(stub_->RepositoryModelLoad(&fifth, load, &loaded).error_code(), StatusCode::NOT_FOUND);
}

TEST_F(GrpcServerTest, StopCancelsWhatDoesNotEnd) {
  auto stuck = std::async(std::launch::async, [&] { return infer(echo_request("stuck")); });
  ASSERT_TRUE(eventually([&] { return service_.unanswered() == 1; }));
  server_->stop(50ms);
  EXPECT_FALSE(stuck.get().ok());
  EXPECT_EQ(service_.cancelled(), 1U);
}

// Otherwise the kernel would give each server half of the calls.
TEST_F(GrpcServerTest, APortInUseIsAnError) {
  GrpcServer::Options options;
  options.port = static_cast<std::uint16_t>(server_->port());
  EXPECT_THROW(GrpcServer(service_, options), base::RunError);
}

// A peer that speaks no HTTP/2 costs nothing but its own connection.
TEST_F(GrpcServerTest, NonsenseOnTheConnectionIsNoCall) {
  test::RawHttp connection(server_->port());
  connection.send("GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(infer(echo_request()).ok());
  EXPECT_EQ(service_.announced().size(), 1U);
}

/// grpc.health.v1: 1 is SERVING, 2 NOT_SERVING. These messages look the same on the wire.
std::uint64_t health(const std::shared_ptr<grpc::Channel>& channel, const std::string& service) {
  inference::ModelReadyRequest request;
  request.set_name(service);
  inference::StatisticDuration response;
  grpc::ClientContext context;
  const grpc::internal::RpcMethod method("/grpc.health.v1.Health/Check",
                                         grpc::internal::RpcMethod::NORMAL_RPC, channel);
  const grpc::Status status =
      grpc::internal::BlockingUnaryCall(channel.get(), method, &context, request, &response);
  return status.ok() ? response.count() : 1000 + static_cast<std::uint64_t>(status.error_code());
}

// Prevents: a client that watches the server's health keeps it for all of --drain-s at each update.
TEST_F(GrpcServerTest, AWatcherOfTheHealthDoesNotKeepTheServer) {
  grpc::ClientContext context;
  const grpc::internal::RpcMethod method("/grpc.health.v1.Health/Watch",
                                         grpc::internal::RpcMethod::SERVER_STREAMING, channel_);
  const std::unique_ptr<grpc::ClientReader<inference::StatisticDuration>> watch(
      grpc::internal::ClientReaderFactory<inference::StatisticDuration>::Create(
          channel_.get(), method, &context, inference::ModelReadyRequest()));
  inference::StatisticDuration response;
  ASSERT_TRUE(watch->Read(&response));
  const auto begin = std::chrono::steady_clock::now();
  server_->finish(begin + 2min);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 1min);
  while (watch->Read(&response)) {
  }
  static_cast<void>(watch->Finish());
}

// Prevents: a request that takes seconds to arrive, or to be answered, is cut off at the end of the
// server.
TEST_F(GrpcServerTest, TheEndWaitsForInferencesThatHaveBegun) {
  grpc::ClientContext context;
  const auto stream = call("/inference.GRPCInferenceService/ModelInfer", context);
  ASSERT_TRUE(eventually([&] { return service_.announced().size() == 1; }));
  const auto end = std::async(std::launch::async,
                              [&] { server_->finish(std::chrono::steady_clock::now() + 2min); });
  // Longer than the quiet second and what other calls have after that.
  std::this_thread::sleep_for(4s);
  stream->Write(echo_request());
  stream->WritesDone();
  EXPECT_TRUE(stream->Read(&response_));
  EXPECT_TRUE(stream->Finish().ok());
}

// Prevents: the probes of Kubernetes and of load balancers fail, or see a server that leaves as
// ready.
TEST_F(GrpcServerTest, AnswersTheHealthProtocol) {
  const std::string service = "inference.GRPCInferenceService";
  ASSERT_TRUE(test::eventually([&] { return health(channel_, "") == 1; }));
  EXPECT_EQ(health(channel_, service), 1U);
  EXPECT_EQ(health(channel_, "other"), 1000U + StatusCode::NOT_FOUND);
  service_.set_ready(false);
  EXPECT_TRUE(test::eventually([&] { return health(channel_, "") == 2; }));
  EXPECT_TRUE(test::eventually([&] { return health(channel_, service) == 2; }));
}

// Prevents: a call of a minute ends because its client asks every few seconds whether the server is
// alive. gRPC allows that every 5 minutes by default.
TEST_F(GrpcServerTest, AClientMayPing) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 5'500);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                                 grpc::InsecureChannelCredentials(), arguments);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 25s);
  const auto stub = inference::GRPCInferenceService::NewStub(channel);
  const grpc::Status status = stub->ModelInfer(&context, echo_request("stuck"), &response_);
  EXPECT_EQ(status.error_code(), StatusCode::DEADLINE_EXCEEDED) << status.error_message();
}

}  // namespace
}  // namespace sluice::server::api
