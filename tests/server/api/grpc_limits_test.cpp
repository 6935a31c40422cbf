// What clients may take of the server's memory and time.
#include <cstring>
#include <future>
#include <thread>

#include "grpc_server_test.hpp"
#include "support/eventually.hpp"

namespace sluice::server::api {
namespace {

using grpc::StatusCode;
using test::eventually;
using namespace std::chrono_literals;

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

// Prevents: messages that take any amount of memory because only their tensors count.
TEST_F(GrpcServerTest, WholeMessagesAreCountedUntilTheyAreAnswered) {
  auto large = echo_request("stuck");
  (*large.mutable_parameters())["padding"].set_string_param(std::string(20'000'000, 'x'));
  grpc::ClientContext context;
  auto stuck = std::async(std::launch::async, [&, large] {
    inference::ModelInferResponse response;
    return stub_->ModelInfer(&context, large, &response).error_code();
  });
  ASSERT_TRUE(eventually([&] { return service_.unanswered() == 1; }));
  EXPECT_GE(service_.memory().used(), 20'000'000U);
  large.set_model_name("echo");
  EXPECT_EQ(infer(large).error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(infer(echo_request()).ok()) << "what fits is served";
  context.TryCancel();
  EXPECT_EQ(stuck.get(), StatusCode::CANCELLED);
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

TEST_F(GrpcServerTest, ACallWithoutAMessageIsForgotten) {
  grpc::ClientContext context;
  const auto stream = call("/inference.GRPCInferenceService/ModelInfer", context);
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
  const auto stream = call("/inference.GRPCInferenceService/ModelInfer", context);
  EXPECT_FALSE(stream->Read(&response_));
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::CANCELLED);
  EXPECT_TRUE(eventually([&] { return service_.open_announcements() == 0; }));
}

}  // namespace
}  // namespace sluice::server::api
