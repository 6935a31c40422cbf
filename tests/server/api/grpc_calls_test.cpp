// How calls at the completion queue of GenericCalls end, and which threads serve them.
#include <grpcpp/support/sync_stream.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "grpc_server_test.hpp"
#include "raw_http.hpp"
#include "raw_http2.hpp"
#include "server/api/health.pb.h"
#include "support/eventually.hpp"

namespace sluice::server::api {
namespace {

using grpc::StatusCode;
using grpc::health::v1::HealthCheckRequest;
using grpc::health::v1::HealthCheckResponse;
using test::eventually;
using namespace std::chrono_literals;

constexpr const char* kPath = "/inference.GRPCInferenceService/ModelInfer";
constexpr const char* kWatch = "/grpc.health.v1.Health/Watch";

/// A request that cannot be cancelled.
inference::ModelInferRequest deaf_request() {
  auto request = echo_request("slow");
  request.set_id("deaf");
  return request;
}

/// A call whose answer a thread waits for.
class Waiting {
 public:
  Waiting(inference::GRPCInferenceService::Stub& stub, inference::ModelInferRequest request,
          std::chrono::seconds limit = 600s)
      : answer_(std::async(std::launch::async, [this, &stub, limit, request = std::move(request)] {
          context_.set_deadline(std::chrono::system_clock::now() + limit);
          inference::ModelInferResponse response;
          return stub.ModelInfer(&context_, request, &response).error_code();
        })) {}
  void cancel() { context_.TryCancel(); }
  StatusCode answer() { return answer_.get(); }

 private:
  grpc::ClientContext context_;
  std::future<StatusCode> answer_;
};

/// grpc.health.v1.Health/Watch
class Watcher {
 public:
  Watcher(const std::shared_ptr<grpc::Channel>& channel, const std::string& service)
      : method_(kWatch, grpc::internal::RpcMethod::SERVER_STREAMING, channel) {
    HealthCheckRequest request;
    request.set_service(service);
    stream_.reset(grpc::internal::ClientReaderFactory<HealthCheckResponse>::Create(
        channel.get(), method_, &context_, request));
  }
  /// The next status; UNKNOWN: the call has ended.
  HealthCheckResponse::ServingStatus next() {
    HealthCheckResponse response;
    return stream_->Read(&response) ? response.status() : HealthCheckResponse::UNKNOWN;
  }
  StatusCode cancel() {
    context_.TryCancel();
    while (next() != HealthCheckResponse::UNKNOWN) {
    }
    return stream_->Finish().error_code();
  }

 private:
  grpc::ClientContext context_;
  grpc::internal::RpcMethod method_;
  std::unique_ptr<grpc::ClientReader<HealthCheckResponse>> stream_;
};

using test::call_bytes;
using test::http2_preface;

// Prevents: the requests of a client that has died run, although nobody gets their answers.
TEST_F(GrpcServerTest, TheRequestOfAClientThatDiesIsCancelled) {
  test::RawHttp connection(server_->port());
  ASSERT_TRUE(connection.send(http2_preface() +
                              call_bytes(1, kPath, echo_request("stuck").SerializeAsString())));
  ASSERT_TRUE(eventually([&] { return service_.unanswered() == 1; }));
  connection.reset();
  EXPECT_TRUE(eventually([&] { return service_.cancelled() == 1; }));
  EXPECT_TRUE(infer(echo_request()).ok());
}

// Prevents: a call that ends before its message is there is announced for good.
TEST_F(GrpcServerTest, ADeadlineEndsACallWithoutAMessage) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + 100ms);
  const auto stream = call(kPath, context);
  EXPECT_FALSE(stream->Read(&response_));
  EXPECT_EQ(stream->Finish().error_code(), StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(eventually([&] { return service_.open_announcements() == 0; }));
}

// Prevents: an answer that comes after the call was cancelled uses the memory of that call.
TEST_F(GrpcServerTest, AnAnswerMayComeAfterTheCallWasCancelled) {
  Waiting deaf(*stub_, deaf_request());
  ASSERT_TRUE(eventually([&] { return service_.unanswered() == 1; }));
  deaf.cancel();
  EXPECT_EQ(deaf.answer(), StatusCode::CANCELLED);
  EXPECT_TRUE(eventually([&] { return service_.unanswered() == 0; }));
  EXPECT_TRUE(eventually([&] { return service_.memory().used() == 0; }));
}

// Prevents: the end of the server does not wait for requests that cannot be cancelled. Their
// answers then come to a queue that has been shut down, which ends the process.
TEST_F(GrpcServerTest, TheEndWaitsForAnAnswerThatIsOnItsWay) {
  Waiting deaf(*stub_, deaf_request());
  ASSERT_TRUE(eventually([&] { return service_.unanswered() == 1; }));
  server_->stop(0ms);
  EXPECT_NE(deaf.answer(), StatusCode::OK);
  EXPECT_EQ(service_.unanswered(), 0U);
}

// Prevents: the end of the server hangs on a call in a state that nobody has thought of.
TEST_F(GrpcServerTest, TheEndEndsCallsInEachState) {
  grpc::ClientContext context;
  const auto no_message = call(kPath, context);
  Waiting stuck(*stub_, echo_request("stuck"));
  grpc::ClientContext unread_context;
  const auto unread = call(kPath, unread_context);
  unread->Write(echo_request("big"));
  Watcher watcher(channel_, "");
  EXPECT_EQ(watcher.next(), HealthCheckResponse::SERVING);
  ASSERT_TRUE(eventually([&] { return service_.unanswered() == 1; }));
  ASSERT_TRUE(eventually([&] { return service_.memory().used() >= 4'000'000; }));
  server_->stop(50ms);
  EXPECT_EQ(service_.unanswered(), 0U);
  // gRPC may free what it had not sent a moment later.
  EXPECT_TRUE(eventually([&] { return service_.memory().used() == 0; }));
  EXPECT_NE(stuck.answer(), StatusCode::OK);
  EXPECT_EQ(watcher.next(), HealthCheckResponse::UNKNOWN);
  EXPECT_FALSE(no_message->Finish().ok());
  // What had arrived before can still be read.
  static_cast<void>(unread->Read(&response_));
  static_cast<void>(unread->Finish());
}

TEST_F(GrpcServerTest, AWatcherLearnsOfEachChange) {
  Watcher server(channel_, "");
  Watcher inference(channel_, "inference.GRPCInferenceService");
  Watcher other(channel_, "other");
  EXPECT_EQ(server.next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(inference.next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(other.next(), HealthCheckResponse::SERVICE_UNKNOWN);
  service_.set_ready(false);
  EXPECT_EQ(server.next(), HealthCheckResponse::NOT_SERVING);
  EXPECT_EQ(inference.next(), HealthCheckResponse::NOT_SERVING);
  service_.set_ready(true);
  EXPECT_EQ(server.next(), HealthCheckResponse::SERVING);
  EXPECT_EQ(server.cancel(), StatusCode::CANCELLED);
  EXPECT_EQ(other.cancel(), StatusCode::CANCELLED) << "a watcher that waits for a change";
}

// Prevents: a status is written, or the call ended, while an earlier status has not left.
TEST_F(GrpcServerTest, AWatcherMayReadNothing) {
  test::RawHttp reads_nothing(server_->port());
  const std::string no_window = {0, 4, 0, 0, 0, 0};
  ASSERT_TRUE(reads_nothing.send(http2_preface(no_window) + call_bytes(1, kWatch, "")));
  Watcher other(channel_, "");
  EXPECT_EQ(other.next(), HealthCheckResponse::SERVING);
  for (const bool ready : {false, true, false}) {
    service_.set_ready(ready);
    EXPECT_EQ(other.next(),
              ready ? HealthCheckResponse::SERVING : HealthCheckResponse::NOT_SERVING);
  }
  reads_nothing.reset();
  service_.set_ready(true);
  EXPECT_EQ(other.next(), HealthCheckResponse::SERVING);
}

// Prevents: small calls wait for the thread that is busy with a large message, or for a thread that
// has not come back from one.
TEST_F(GrpcServerTest, SmallCallsAreServedNextToALargeOne) {
  auto large = echo_request();
  (*large.mutable_parameters())["padding"].set_string_param(std::string(100'000, 'x'));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Waiting(*stub_, large, 10s).answer(), StatusCode::OK);
  large.set_id("keeps the thread");
  Waiting waiting(*stub_, large);
  EXPECT_TRUE(eventually([&] { return service_.loading() == 1; }));
  EXPECT_EQ(Waiting(*stub_, echo_request(), 10s).answer(), StatusCode::OK);
  service_.end_loads();
  EXPECT_EQ(waiting.answer(), StatusCode::OK);
}

// Prevents: as many large messages as there are threads keep the probes of all clients waiting.
TEST_F(GrpcServerTest, ManyLargeCallsKeepNobodyWaiting) {
  auto large = echo_request();
  (*large.mutable_parameters())["padding"].set_string_param(std::string(100'000, 'x'));
  large.set_id("keeps the thread");
  std::deque<Waiting> waiting;
  for (int i = 0; i < 40; ++i) waiting.emplace_back(*stub_, large);
  EXPECT_TRUE(eventually([&] { return service_.loading() >= 2; }));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Waiting(*stub_, echo_request(), 10s).answer(), StatusCode::OK);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 10s);
    inference::ServerLiveResponse live;
    EXPECT_TRUE(stub_->ServerLive(&context, {}, &live).ok());
  }
  service_.end_loads();
  for (Waiting& each : waiting) EXPECT_EQ(each.answer(), StatusCode::OK);
}

// Prevents: a service in gRPC's callback API. Its threads wait for all connections, so each event
// wakes one of them, and a small request takes twice as long.
TEST_F(GrpcServerTest, NoThreadOfTheCallbackApiRuns) {
  ASSERT_TRUE(infer(echo_request()).ok());
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(thread.path() / "comm") >> name;
    EXPECT_NE(name, "nexting_thread");
  }
}

}  // namespace
}  // namespace sluice::server::api
