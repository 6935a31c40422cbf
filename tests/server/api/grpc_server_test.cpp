#include "server/api/grpc_server.hpp"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.hpp"
#include "fake_service.hpp"
#include "raw_http.hpp"
#include "server/api/colserve.grpc.pb.h"
#include "server/api/colserve_published.grpc.pb.h"
#include "server/api/kserve.grpc.pb.h"
#include "support/eventually.hpp"

namespace sluice::server::api {
namespace {

using grpc::StatusCode;
using test::eventually;
using namespace std::chrono_literals;

inference::ModelInferRequest echo_request(const std::string& model = "echo") {
  inference::ModelInferRequest request;
  request.set_model_name(model);
  auto& input = *request.add_inputs();
  input.set_name("IN");
  input.set_datatype("INT32");
  input.add_shape(1);
  input.add_shape(2);
  const std::int32_t values[] = {1, 2};
  request.add_raw_input_contents(values, sizeof(values));
  return request;
}

class GrpcServerTest : public testing::Test {
 protected:
  GrpcServerTest() { restart({}); }

  /// Whatever a test does, each announcement has ended once.
  ~GrpcServerTest() override {
    server_.reset();
    EXPECT_EQ(service_.open_announcements(), 0U);
    EXPECT_EQ(service_.wrong_announcements(), 0U);
  }

  void restart(const GrpcServer::Options& options) {
    server_.reset();
    server_ = std::make_unique<GrpcServer>(service_, options);
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    // A client takes 64 KiB of a response that it does not read, not as much as the network
    // carries.
    arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    // Otherwise the channels of two tests share a connection.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    channel_ = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(server_->port()),
                                         grpc::InsecureChannelCredentials(), arguments);
    stub_ = inference::GRPCInferenceService::NewStub(channel_);
    colserve_ = colserve::ColServe::NewStub(channel_);
  }

  grpc::Status infer(const inference::ModelInferRequest& request) {
    grpc::ClientContext context;
    response_.Clear();
    return stub_->ModelInfer(&context, request, &response_);
  }

  static constexpr std::uint64_t kMemory = 30'000'000;
  test::FakeService service_{kMemory};
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
  std::unique_ptr<colserve::ColServe::Stub> colserve_;
  inference::ModelInferResponse response_;
};

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
  const grpc::internal::RpcMethod method("/inference.GRPCInferenceService/ModelInfer",
                                         grpc::internal::RpcMethod::BIDI_STREAMING, channel_);
  std::unique_ptr<
      grpc::ClientReaderWriter<inference::ModelInferRequest, inference::ModelInferResponse>>
      stream(grpc::internal::ClientReaderWriterFactory<
             inference::ModelInferRequest, inference::ModelInferResponse>::Create(channel_.get(),
                                                                                  method,
                                                                                  &context));
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

TEST_F(GrpcServerTest, ACallWithoutAMessageIsForgotten) {
  grpc::ClientContext context;
  const grpc::internal::RpcMethod method("/inference.GRPCInferenceService/ModelInfer",
                                         grpc::internal::RpcMethod::BIDI_STREAMING, channel_);
  std::unique_ptr<
      grpc::ClientReaderWriter<inference::ModelInferRequest, inference::ModelInferResponse>>
      stream(grpc::internal::ClientReaderWriterFactory<
             inference::ModelInferRequest, inference::ModelInferResponse>::Create(channel_.get(),
                                                                                  method,
                                                                                  &context));
  stream->WritesDone();
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(eventually([&] { return service_.open_announcements() == 0; }));
  EXPECT_EQ(service_.announced().size(), 1U);
}

TEST_F(GrpcServerTest, AMessageThatDoesNotArriveEndsTheCall) {
  GrpcServer::Options options;
  options.read_timeout = 100ms;
  restart(options);
  grpc::ClientContext context;
  const grpc::internal::RpcMethod method("/inference.GRPCInferenceService/ModelInfer",
                                         grpc::internal::RpcMethod::BIDI_STREAMING, channel_);
  std::unique_ptr<
      grpc::ClientReaderWriter<inference::ModelInferRequest, inference::ModelInferResponse>>
      stream(grpc::internal::ClientReaderWriterFactory<
             inference::ModelInferRequest, inference::ModelInferResponse>::Create(channel_.get(),
                                                                                  method,
                                                                                  &context));
  EXPECT_FALSE(stream->Read(&response_));
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(eventually([&] { return service_.open_announcements() == 0; }));
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

TEST_F(GrpcServerTest, AMessageOverTheLimitIsRefused) {
  GrpcServer::Options options;
  options.max_request_bytes = 1000;
  restart(options);
  auto request = echo_request();
  request.set_raw_input_contents(0, std::string(1000, 'x'));
  EXPECT_EQ(infer(request).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(eventually([&] { return service_.open_announcements() == 0; }));
}

// A small message must not become a large one in the server's memory.
// Prevents: clients whose messages have not arrived completely fill the memory of the machine.
// Until a message is complete, only gRPC knows of it.
TEST_F(GrpcServerTest, MessagesThatArriveShareALimit) {
  GrpcServer::Options options;
  options.max_arriving_bytes = std::size_t{1} << 20U;
  restart(options);
  const auto large = [] {
    auto request = echo_request();
    request.mutable_inputs(0)->set_shape(1, 2'000'000);
    request.set_raw_input_contents(0, std::string(8'000'000, 'x'));
    return request;
  };
  const grpc::Status status = infer(large());
  EXPECT_FALSE(status.ok()) << "larger than all messages together may be";
  EXPECT_TRUE(service_.requests().empty());
  // Those that fit are served, also right after the others.
  EXPECT_TRUE(eventually([&] { return infer(echo_request()).ok(); }));
  options.max_arriving_bytes = std::size_t{64} << 20U;
  restart(options);
  EXPECT_TRUE(infer(large()).ok());
}

TEST_F(GrpcServerTest, AnInflatedMessageOverTheLimitIsRefused) {
  GrpcServer::Options options;
  options.max_request_bytes = std::size_t{1} << 20;
  restart(options);
  auto request = echo_request();
  request.set_raw_input_contents(0, std::string(16 << 20, '\0'));
  grpc::ClientContext context;
  context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  EXPECT_EQ(stub_->ModelInfer(&context, request, &response_).error_code(),
            StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(service_.requests().empty());
}

TEST_F(GrpcServerTest, TakesCompressedMessages) {
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    EXPECT_TRUE(stub_->ModelInfer(&context, echo_request(), &response_).ok());
  }
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
  const grpc::internal::RpcMethod method("/inference.GRPCInferenceService/ModelStreamInfer",
                                         grpc::internal::RpcMethod::BIDI_STREAMING, channel_);
  std::unique_ptr<
      grpc::ClientReaderWriter<inference::ModelInferRequest, inference::ModelInferResponse>>
      stream(grpc::internal::ClientReaderWriterFactory<
             inference::ModelInferRequest, inference::ModelInferResponse>::Create(channel_.get(),
                                                                                  method,
                                                                                  &context));
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

TEST_F(GrpcServerTest, DescribesAModel) {
  grpc::ClientContext first;
  inference::ModelConfigRequest request;
  request.set_name("add");
  inference::ModelConfigResponse config;
  ASSERT_TRUE(stub_->ModelConfig(&first, request, &config).ok());
  EXPECT_EQ(config.config().backend(), "sluice");
  EXPECT_EQ(config.config().max_batch_size(), 8);
  EXPECT_EQ(config.config().input(0).data_type(), inference::TYPE_INT32);
  EXPECT_EQ(config.config().input(0).dims_size(), 1);

  grpc::ClientContext second;
  request.set_version("2");
  EXPECT_EQ(stub_->ModelConfig(&second, request, &config).error_code(), StatusCode::NOT_FOUND);

  grpc::ClientContext third;
  inference::ModelReadyRequest ready;
  ready.set_name("none");
  inference::ModelReadyResponse answer;
  EXPECT_EQ(stub_->ModelReady(&third, ready, &answer).error_code(), StatusCode::NOT_FOUND);
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
}

// Prevents: messages that take any amount of memory because only their tensors count.
TEST_F(GrpcServerTest, WholeMessagesAreCountedUntilTheyAreAnswered) {
  auto large = echo_request("stuck");
  (*large.mutable_parameters())["padding"].set_string_param(std::string(20'000'000, 'x'));
  auto stuck = std::async(std::launch::async, [&] {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 1s);
    inference::ModelInferResponse response;
    return stub_->ModelInfer(&context, large, &response).error_code();
  });
  ASSERT_TRUE(eventually([&] { return service_.unanswered() == 1; }));
  EXPECT_GE(service_.memory().used(), 20'000'000U);
  large.set_model_name("echo");
  EXPECT_EQ(infer(large).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(infer(echo_request()).ok()) << "what fits is served";
  EXPECT_EQ(stuck.get(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(eventually([&] { return service_.memory().used() == 0; }));
}

// Prevents: a message of millions of empty strings, which takes twenty times its bytes once parsed.
TEST_F(GrpcServerTest, TheParsedFormIsCounted) {
  auto request = echo_request();
  request.mutable_inputs(0)->set_datatype("BYTES");
  request.mutable_inputs(0)->set_shape(1, 2'000'000);
  request.clear_raw_input_contents();
  for (int i = 0; i < 2'000'000; ++i)
    request.mutable_inputs(0)->mutable_contents()->add_bytes_contents();
  EXPECT_LT(request.ByteSizeLong(), kMemory / 5);
  EXPECT_EQ(infer(request).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(eventually([&] { return service_.memory().used() == 0; }));
}

/// An inference whose response the client does not read.
class Unread {
 public:
  explicit Unread(const std::shared_ptr<grpc::Channel>& channel)
      : method_("/inference.GRPCInferenceService/ModelInfer",
                grpc::internal::RpcMethod::BIDI_STREAMING, channel),
        stream_(grpc::internal::ClientReaderWriterFactory<
                inference::ModelInferRequest, inference::ModelInferResponse>::Create(channel.get(),
                                                                                     method_,
                                                                                     &context_)) {
    stream_->Write(echo_request("big"));
    stream_->WritesDone();
  }
  StatusCode read() {
    inference::ModelInferResponse response;
    stream_->Read(&response);
    return stream_->Finish().error_code();
  }

 private:
  grpc::ClientContext context_;
  grpc::internal::RpcMethod method_;
  std::unique_ptr<
      grpc::ClientReaderWriter<inference::ModelInferRequest, inference::ModelInferResponse>>
      stream_;
};

// Prevents: responses that nobody reads fill the memory of the machine.
TEST_F(GrpcServerTest, UnreadResponsesAreCountedUntilTheyHaveBeenSent) {
  std::vector<std::unique_ptr<Unread>> unread;
  for (int i = 0; i < 20; ++i) unread.push_back(std::make_unique<Unread>(channel_));
  ASSERT_TRUE(eventually([&] { return service_.memory().used() > kMemory - 4'000'000; }));
  auto large = echo_request();
  large.set_id(std::string(4'000'000, 'x'));
  EXPECT_EQ(infer(large).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(infer(echo_request()).ok());
  int answered = 0;
  for (const auto& each : unread) answered += each->read() == StatusCode::OK ? 1 : 0;
  EXPECT_GE(answered, 6);
  EXPECT_LT(answered, 20);
  EXPECT_TRUE(eventually([&] { return service_.memory().used() == 0; }));
}

// Prevents: two clients that never read, and so have all others refused.
TEST_F(GrpcServerTest, AResponseThatIsNotReadEndsTheCall) {
  GrpcServer::Options options;
  options.write_timeout = -61s;  // A second for each 64 KiB of 4 MB is added.
  restart(options);
  Unread unread(channel_);
  EXPECT_TRUE(eventually([&] { return service_.memory().used() > 0; }));
  EXPECT_TRUE(eventually([&] { return service_.memory().used() == 0; }));
  EXPECT_NE(unread.read(), StatusCode::OK);
}

// Prevents: connections that nobody uses keep their descriptors for good.
TEST_F(GrpcServerTest, AConnectionWithoutACallIsEnded) {
  GrpcServer::Options options;
  options.idle_timeout = 100ms;
  restart(options);
  EXPECT_TRUE(infer(echo_request()).ok());
  ASSERT_EQ(channel_->GetState(false), GRPC_CHANNEL_READY);
  EXPECT_TRUE(
      channel_->WaitForStateChange(GRPC_CHANNEL_READY, std::chrono::system_clock::now() + 10s));
  EXPECT_TRUE(infer(echo_request()).ok()) << "the client connects again";
}

// The published proto file has no package.
TEST_F(GrpcServerTest, ServesThePublishedCallsUnderTheirPublishedName) {
  const auto stub = ::ColServe::NewStub(channel_);
  colserve::InferRequest request;
  request.set_model("echo");
  auto& input = *request.add_inputs();
  input.set_dtype("float32");
  input.add_shape(1);
  const float value = 1.5F;
  input.set_data(&value, sizeof(value));
  colserve::InferResult result;
  grpc::ClientContext first;
  ASSERT_TRUE(stub->Inference(&first, request, &result).ok());
  EXPECT_EQ(result.result(), "ok");
  EXPECT_EQ(result.outputs(0).data(), input.data());

  grpc::ClientContext second;
  colserve::ServerStatus status;
  ASSERT_TRUE(stub->GetServerStatus(&second, {}, &status).ok());
  EXPECT_EQ(status.status(), "running");

  grpc::ClientContext third;
  colserve::TrainResult trained;
  grpc::ClientContext same;
  colserve::TrainResult same_trained;
  EXPECT_EQ(stub->Train(&third, {}, &trained).error_code(),
            colserve_->Train(&same, {}, &same_trained).error_code());

  grpc::ClientContext fourth;
  colserve::EmptyRequest nothing;
  ASSERT_TRUE(stub->Shutdown(&fourth, {}, &nothing).ok());
  EXPECT_TRUE(service_.shutting_down());
}

// Prevents: the published Inference as a way around the limit.
TEST_F(GrpcServerTest, APublishedInferenceIsCounted) {
  colserve::InferRequest request;
  request.set_model("echo");
  auto& input = *request.add_inputs();
  input.set_dtype("uint8");
  input.add_shape(12'000'000);
  input.set_data(std::string(12'000'000, 'x'));
  colserve::InferResult result;
  grpc::ClientContext first;
  EXPECT_EQ(colserve_->Inference(&first, request, &result).error_code(),
            StatusCode::RESOURCE_EXHAUSTED)
      << "its response does not fit";
  ASSERT_TRUE(eventually([&] { return service_.memory().used() == 0; }));
  input.set_shape(0, 8'000'000);
  input.set_data(std::string(8'000'000, 'x'));
  grpc::ClientContext second;
  EXPECT_TRUE(colserve_->Inference(&second, request, &result).ok());
  EXPECT_TRUE(eventually([&] { return service_.memory().used() == 0; }));
}

TEST_F(GrpcServerTest, ServesThePublishedCalls) {
  colserve::InferRequest request;
  request.set_model("echo");
  auto& input = *request.add_inputs();
  input.set_dtype("float32");
  input.add_shape(1);
  const float value = 1.5F;
  input.set_data(&value, sizeof(value));
  colserve::InferResult result;
  grpc::ClientContext first;
  ASSERT_TRUE(colserve_->Inference(&first, request, &result).ok());
  EXPECT_EQ(result.outputs(0).dtype(), "float32");
  EXPECT_EQ(result.outputs(0).data(), input.data());

  grpc::ClientContext second;
  input.add_shape(2);
  EXPECT_EQ(colserve_->Inference(&second, request, &result).error_code(),
            StatusCode::INVALID_ARGUMENT);

  grpc::ClientContext third;
  colserve::TrainResult train;
  ASSERT_TRUE(colserve_->Train(&third, {}, &train).ok());
  EXPECT_EQ(train.result(), "train ok");
  colserve::TrainRequest job;
  job.set_model("fails");
  grpc::ClientContext failing;
  const grpc::Status failed = colserve_->Train(&failing, job, &train);
  EXPECT_EQ(failed.error_code(), StatusCode::INTERNAL);
  EXPECT_EQ(failed.error_message(), "exited with 1");
  grpc::ClientContext stopping;
  EXPECT_TRUE(colserve_->TrainStop(&stopping, job, &train).ok());
  job.set_model("none");
  grpc::ClientContext unknown;
  EXPECT_EQ(colserve_->TrainStop(&unknown, job, &train).error_code(), StatusCode::NOT_FOUND);

  grpc::ClientContext fourth;
  colserve::SchedulerRequest scheduler;
  scheduler.set_name("FIFO");
  colserve::SchedulerResult chosen;
  ASSERT_TRUE(colserve_->SetScheduler(&fourth, scheduler, &chosen).ok());
  EXPECT_EQ(chosen.name(), "FIFO");

  grpc::ClientContext fifth;
  colserve::StatusResult status;
  ASSERT_TRUE(colserve_->Status(&fifth, {}, &status).ok());
  EXPECT_EQ(nlohmann::json::parse(status.json())["scheduler"], "FIFO");
  // Prevents: bytes that are not UTF-8, from a damaged file, end the server.
  EXPECT_EQ(nlohmann::json::parse(status.json())["reason"], "found \uFFFD in model.json");

  grpc::ClientContext sixth;
  colserve::EmptyRequest nothing;
  ASSERT_TRUE(colserve_->Shutdown(&sixth, {}, &nothing).ok());
  EXPECT_TRUE(service_.shutting_down());
}

TEST_F(GrpcServerTest, ACancelledPublishedCallCancelsItsRequest) {
  colserve::InferRequest request;
  request.set_model("stuck");
  request.add_inputs()->set_dtype("float32");
  request.mutable_inputs(0)->add_shape(0);
  colserve::InferResult result;
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 50ms);
  EXPECT_EQ(colserve_->Inference(&context, request, &result).error_code(),
            StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(eventually([&] { return service_.unanswered() == 0; }));
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

}  // namespace
}  // namespace sluice::server::api
