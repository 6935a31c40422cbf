// What an operator sees of each request: refusals that the protocols make by themselves, and
// traces.
#include "grpc_server_test.hpp"
#include "http_server_test.hpp"
#include "server/api/trace.hpp"
#include "support/eventually.hpp"

namespace sluice::server::api {
namespace {

using test::eventually;
using test::http_request;

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736";
const std::string kParent = "00-" + kTrace + "-00f067aa0ba902b7-01";

std::string refusal(const std::string& model, Code code, const std::string& reason) {
  return model + " " + std::to_string(static_cast<int>(code)) + " " + reason;
}

TEST(Traceparent, KeepsTheTraceAndHasAnIdOfItsOwn) {
  const std::string next = next_traceparent(kParent);
  ASSERT_EQ(next.size(), kParent.size());
  EXPECT_EQ(next.substr(0, 36), "00-" + kTrace + "-");
  EXPECT_EQ(next.substr(52), "-01");
  EXPECT_NE(next, kParent);
  EXPECT_NE(next, next_traceparent(kParent));
  EXPECT_EQ(next_traceparent("01" + kParent.substr(2) + "-more").substr(0, 36), next.substr(0, 36));
}

TEST(Traceparent, AnythingElseIsNone) {
  for (const std::string& bad :
       {std::string(), std::string("00"), kParent.substr(1), kParent + "-x",
        "ff" + kParent.substr(2), "00-" + std::string(32, '0') + kParent.substr(35),
        kParent.substr(0, 36) + std::string(16, '0') + "-01", kParent.substr(0, 53) + "0G",
        "00-" + kTrace + "_00f067aa0ba902b7-01", kParent + std::string(1000, 'a')}) {
    EXPECT_EQ(next_traceparent(bad), "") << bad;
  }
}

// Prevents: 400 and 413 at the clients, and nothing in the metrics.
TEST_F(HttpServerTest, RefusalsOfItsOwnAreCountedOnce) {
  HttpServer::Options options;
  options.max_request_bytes = 1000;
  restart(options);
  infer("echo", "{");
  infer("echo", std::string(2000, ' '));
  ask(http_request("POST", kEcho, "x", "Content-Encoding: br\r\n"));
  ask("POST " + kEcho + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n");
  infer("echo", echo_body());
  infer("refusing", echo_body());
  ask(http_request("GET", "/nothing"));
  ask(http_request("POST", "/v2/scheduler", "{"));
  EXPECT_EQ(service_.refusals(),
            (std::vector<std::string>{refusal("echo", Code::kInvalidArgument, "malformed"),
                                      refusal("echo", Code::kResourceExhausted, "too_large"),
                                      refusal("echo", Code::kInvalidArgument, "malformed"),
                                      refusal("echo", Code::kInvalidArgument, "malformed")}));
}

TEST_F(HttpServerTest, EachRefusalHasItsCodeAndReason) {
  HttpServer::Options options;
  options.max_arriving_bytes = 500;
  options.body_timeout = std::chrono::milliseconds(100);
  restart(options);
  infer("echo", std::string(600, ' '));
  ask(http_request("POST", kEcho, echo_body(), "Expect: wonders\r\n"));
  ask("POST " + kEcho + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n");
  ask("POST " + kEcho + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nslow");
  auto leaves = connect();
  leaves.send("POST " + kEcho + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf");
  leaves.half_close();
  EXPECT_TRUE(leaves.reply());
  EXPECT_EQ(service_.refusals(),
            (std::vector<std::string>{refusal("echo", Code::kResourceExhausted, "memory"),
                                      refusal("echo", Code::kUnimplemented, "malformed"),
                                      refusal("echo", Code::kUnimplemented, "malformed"),
                                      refusal("echo", Code::kDeadlineExceeded, "too_slow"),
                                      refusal("echo", Code::kInvalidArgument, "cut_off")}));
}

TEST_F(HttpServerTest, AStrangerIsCounted) {
  HttpServer::Options options;
  options.access.tokens = {"0123456789abcdef"};
  restart(options);
  infer("echo", echo_body());
  EXPECT_EQ(service_.refusals(),
            (std::vector<std::string>{refusal("echo", Code::kUnauthenticated, "token")}));
}

TEST_F(HttpServerTest, ATraceGoesThrough) {
  const std::string header = "traceparent: " + kParent + "\r\n";
  const auto reply = ask(http_request("POST", kEcho, echo_body(), header));
  EXPECT_EQ(reply.headers.at("traceparent").substr(3, 32), kTrace);
  EXPECT_EQ(service_.requests().at(0).trace, reply.headers.at("traceparent"));
  const auto bad = ask(http_request("POST", kEcho, "{", header));
  EXPECT_EQ(bad.headers.at("traceparent").substr(3, 32), kTrace);
  EXPECT_EQ(infer("echo", echo_body()).headers.count("traceparent"), 0U);
}

TEST_F(GrpcServerTest, RefusalsOfItsOwnAreCountedOnce) {
  auto request = echo_request();
  request.clear_raw_input_contents();
  EXPECT_FALSE(infer(request).ok());
  EXPECT_TRUE(infer(echo_request()).ok());
  EXPECT_FALSE(infer(echo_request("refusing")).ok());
  colserve::InferRequest published;
  published.set_model("add");
  colserve::InferResult result;
  grpc::ClientContext first;
  EXPECT_FALSE(colserve_->Inference(&first, published, &result).ok());
  for (const char* path : {"/inference.GRPCInferenceService/ModelInfer", "/ColServe/Inference"}) {
    grpc::ClientContext context;
    const auto no_message = call(path, context);
    no_message->WritesDone();
    EXPECT_EQ(no_message->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(service_.refusals(),
            (std::vector<std::string>{refusal("", Code::kInvalidArgument, "malformed"),
                                      refusal("add", Code::kInvalidArgument, "malformed"),
                                      refusal("", Code::kInvalidArgument, "cut_off"),
                                      refusal("", Code::kInvalidArgument, "cut_off")}));
}

TEST_F(GrpcServerTest, AStrangerIsCounted) {
  GrpcServer::Options options;
  options.access.tokens = {"0123456789abcdef"};
  restart(options);
  EXPECT_FALSE(infer(echo_request()).ok());
  grpc::ClientContext first;
  colserve::InferResult result;
  EXPECT_FALSE(colserve_->Inference(&first, {}, &result).ok());
  grpc::ClientContext second;
  inference::ServerMetadataResponse metadata;
  EXPECT_FALSE(stub_->ServerMetadata(&second, {}, &metadata).ok());
  EXPECT_EQ(service_.refusals(),
            (std::vector<std::string>{refusal("", Code::kUnauthenticated, "token"),
                                      refusal("", Code::kUnauthenticated, "token")}));
}

TEST_F(GrpcServerTest, ATraceGoesThrough) {
  grpc::ClientContext context;
  context.AddMetadata("traceparent", kParent);
  ASSERT_TRUE(stub_->ModelInfer(&context, echo_request(), &response_).ok());
  const auto& trailer = context.GetServerTrailingMetadata();
  const auto found = trailer.find("traceparent");
  ASSERT_NE(found, trailer.end());
  EXPECT_EQ(std::string(found->second.data(), found->second.size()).substr(3, 32), kTrace);
  EXPECT_EQ(service_.requests().at(0).trace.substr(3, 32), kTrace);
}

}  // namespace
}  // namespace sluice::server::api
