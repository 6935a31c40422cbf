// What clients may take of the server's memory and time.
#include <algorithm>
#include <cstring>
#include <future>
#include <thread>

#include "grpc_server_test.hpp"
#include "raw_http.hpp"
#include "raw_http2.hpp"
#include "support/eventually.hpp"

namespace sluice::server::api {
namespace {

using grpc::StatusCode;
using test::eventually;
using namespace std::chrono_literals;

constexpr const char* kInfer = "/inference.GRPCInferenceService/ModelInfer";

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

/// A call on stream 3 that is wrong in some way. None of these is a fault of HTTP/2 itself, so a
/// proxy may pass it on.
std::vector<std::pair<std::string, std::string>> faulty_calls() {
  const std::string good = echo_request().SerializeAsString();
  const std::string sent = test::grpc_message(good);
  const auto with = [&](const test::Http2Headers& more, const std::string& body) {
    auto headers = test::grpc_headers(kInfer);
    headers.insert(headers.end(), more.begin(), more.end());
    return test::header_frames(3, headers, false) + test::frame(0, 1, 3, body);
  };
  std::vector<std::pair<std::string, std::string>> calls;
  for (const std::size_t bytes : {7'000, 9'000, 17'000, 60'000, 70'000, 300'000, 900'000}) {
    calls.emplace_back(std::to_string(bytes) + " bytes of metadata",
                       with({{"x-large", std::string(bytes, 'a')}}, sent));
  }
  calls.emplace_back("many headers", with(test::Http2Headers(20'000, {"a", ""}), sent));
  for (std::size_t left_out = 0; left_out < test::grpc_headers(kInfer).size(); ++left_out) {
    auto headers = test::grpc_headers(kInfer);
    auto other = headers;
    other[left_out].second = "wrong";
    const std::string name = headers[left_out].first;
    headers.erase(headers.begin() + static_cast<std::ptrdiff_t>(left_out));
    for (const auto& each : {headers, other}) {
      calls.emplace_back(name + " missing or wrong",
                         test::header_frames(3, each, false) + test::frame(0, 1, 3, sent));
    }
  }
  for (const auto& header : test::Http2Headers{{"grpc-timeout", "soon"},
                                               {"grpc-encoding", "none"},
                                               {"content-length", "5"},
                                               {"x", std::string("a\0\n\xff", 4)},
                                               {"", ""},
                                               {":other", "x"},
                                               {"grpc-status", "x"}}) {
    calls.emplace_back(header.first, with({header}, sent));
  }
  calls.emplace_back("no message", with({}, ""));
  calls.emplace_back("half a message", with({}, sent.substr(0, sent.size() / 2)));
  calls.emplace_back("two messages", with({}, sent + sent));
  calls.emplace_back("a wrong flag", with({}, '\7' + sent.substr(1)));
  calls.emplace_back("no gzip", with({{"grpc-encoding", "gzip"}}, '\1' + sent.substr(1)));
  calls.emplace_back("4 GiB", with({}, std::string("\0\xff\xff\xff\xff", 5) + good));
  calls.emplace_back("nonsense", with({}, test::grpc_message("\xff\xff\xff")));
  calls.emplace_back("reset", test::header_frames(3, test::grpc_headers(kInfer), false) +
                                  test::frame(3, 0, 3, std::string("\0\0\0\10", 4)));
  return calls;
}

// Prevents: one client ends the calls of others that a proxy has put on the same connection.
TEST_F(GrpcServerTest, AFaultyCallEndsNoOtherCallOfItsConnection) {
  for (const auto& [name, bytes] : faulty_calls()) {
    restart({});
    const auto before = service_.requests().size();
    const auto cancelled = service_.cancelled();
    test::RawHttp connection(server_->port());
    connection.send(test::http2_preface() +
                    test::call_bytes(1, kInfer, echo_request("stuck").SerializeAsString()));
    ASSERT_TRUE(connection.hears());
    connection.send(test::settings_acknowledged());
    ASSERT_TRUE(eventually([&] { return service_.unanswered() == 1; })) << name;
    connection.send(bytes);
    auto later = echo_request();
    later.set_id("later");
    connection.send(test::call_bytes(5, kInfer, later.SerializeAsString()));
    EXPECT_TRUE(eventually([&] {
      const auto requests = service_.requests();
      return std::ranges::any_of(requests.begin() + static_cast<std::ptrdiff_t>(before),
                                 requests.end(),
                                 [](const auto& each) { return each.id == "later"; });
    })) << "a later call after: "
        << name;
    EXPECT_EQ(service_.unanswered(), 1U) << "an earlier call next to: " << name;
    EXPECT_EQ(service_.cancelled(), cancelled) << name;
    if (HasFailure()) return;
    connection.reset();
    EXPECT_TRUE(eventually([&] { return service_.unanswered() == 0; }));
  }
}

// Prevents: one client that does not read its answers takes all threads of gRPC's synchronous API,
// and the probes of all others are refused.
TEST_F(GrpcServerTest, AnswersThatNobodyReadsTakeNoThreads) {
  test::RawHttp reads_nothing(server_->port());
  const std::string no_window = {0, 4, 0, 0, 0, 0};
  reads_nothing.send(test::http2_preface(no_window));
  const std::string kserve = "/inference.GRPCInferenceService/";
  const std::vector<std::string> paths = {kserve + "ServerLive",
                                          kserve + "ServerReady",
                                          kserve + "ServerMetadata",
                                          kserve + "ModelReady",
                                          kserve + "ModelMetadata",
                                          kserve + "ModelConfig",
                                          kserve + "ModelStatistics",
                                          kserve + "RepositoryIndex",
                                          "/colserve.ColServe/Status",
                                          "/ColServe/GetServerStatus",
                                          "/colserve.ColServe/GetServerStatus"};
  std::string calls;
  std::uint32_t stream = 1;
  for (int i = 0; i < 1200; ++i, stream += 2) {
    calls += test::call_bytes(stream, paths[static_cast<std::size_t>(i) % paths.size()], "");
  }
  calls += test::call_bytes(stream, kInfer, echo_request().SerializeAsString());
  ASSERT_TRUE(reads_nothing.send(calls));
  ASSERT_TRUE(eventually([&] { return service_.requests().size() == 1; })) << "all have arrived";
  for (int i = 0; i < 20; ++i) {
    grpc::ClientContext first, second;
    inference::ServerLiveResponse live;
    const auto probe = stub_->ServerLive(&first, {}, &live);
    EXPECT_TRUE(probe.ok()) << probe.error_message();
    inference::RepositoryModelLoadRequest load;
    load.set_model_name("echo");
    inference::RepositoryModelLoadResponse loaded;
    const auto control = stub_->RepositoryModelLoad(&second, load, &loaded);
    EXPECT_TRUE(control.ok()) << control.error_message();
  }
}

// Prevents: metadata that proxies and tokens have is refused, or more than that is kept.
TEST_F(GrpcServerTest, MetadataIsBounded) {
  const auto code = [&](std::size_t bytes, bool probe) {
    grpc::ClientContext context;
    context.AddMetadata("x-large", std::string(bytes, 'a'));
    if (!probe) return stub_->ModelInfer(&context, echo_request(), &response_).error_code();
    inference::ServerLiveResponse live;
    return stub_->ServerLive(&context, {}, &live).error_code();
  };
  for (const bool probe : {false, true}) {
    EXPECT_EQ(code(60'000, probe), StatusCode::OK);
    EXPECT_EQ(code(70'000, probe), StatusCode::RESOURCE_EXHAUSTED);
  }
  const auto too_large = std::to_string(static_cast<int>(Code::kResourceExhausted));
  EXPECT_EQ(service_.refusals(), std::vector<std::string>{" " + too_large + " too_large"});
  EXPECT_EQ(service_.announced().size(), 1U) << "refused before it is announced";
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
