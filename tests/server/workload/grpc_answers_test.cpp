// The gRPC client against answers that `sluice serve` never gives, or hardly ever. Prevents: a
// report with the wrong code, and a client that fails at a large answer.
#include <gmock/gmock.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <future>

#include "base/error.hpp"
#include "server/api/kserve.grpc.pb.h"
#include "server/workload/client.hpp"

namespace sluice::server::workload {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// Gives each inference the same answer.
class FixedServer final : public inference::GRPCInferenceService::Service {
 public:
  FixedServer() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  [[nodiscard]] int port() const { return port_; }

  // Set between requests only.
  grpc::Status status;
  inference::ModelInferResponse response;

 private:
  grpc::Status ModelInfer(grpc::ServerContext* /*context*/,
                          const inference::ModelInferRequest* /*request*/,
                          inference::ModelInferResponse* answer) override {
    *answer = response;
    return status;
  }
  grpc::Status ModelMetadata(grpc::ServerContext* /*context*/,
                             const inference::ModelMetadataRequest* /*request*/,
                             inference::ModelMetadataResponse* /*answer*/) override {
    return status;
  }

  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

class GrpcAnswersTest : public testing::TestWithParam<Client::Begin> {
 protected:
  Answer ask(bool outputs = true) {
    const auto client = connect_grpc({"127.0.0.1", server_.port(), outputs});
    std::promise<Answer> promise;
    auto answer = promise.get_future();
    const auto call = client->start(client->prepare({"m", {}, {}}), GetParam(),
                                    [&](Answer a) { promise.set_value(std::move(a)); });
    if (GetParam() == Client::Begin::kHeaders) call->send_body();
    if (answer.wait_for(10s) != std::future_status::ready) {
      ADD_FAILURE() << "no answer";
      call->cancel();
    }
    return answer.get();
  }
  inference::ModelInferResponse::InferOutputTensor& add_output(const std::string& type) {
    auto* output = server_.response.add_outputs();
    output->set_datatype(type);
    return *output;
  }

  FixedServer server_;
};

INSTANTIATE_TEST_SUITE_P(Calls, GrpcAnswersTest,
                         testing::Values(Client::Begin::kWhole, Client::Begin::kHeaders),
                         [](const auto& each) {
                           return each.param == Client::Begin::kWhole ? "whole" : "headers";
                         });

TEST_P(GrpcAnswersTest, EachStatusHasItsCode) {
  using grpc::StatusCode;
  const std::map<StatusCode, Code> codes{{StatusCode::OK, Code::kOk},
                                         {StatusCode::CANCELLED, Code::kCancelled},
                                         {StatusCode::UNKNOWN, Code::kInternal},
                                         {StatusCode::INVALID_ARGUMENT, Code::kInvalidArgument},
                                         {StatusCode::DEADLINE_EXCEEDED, Code::kDeadlineExceeded},
                                         {StatusCode::NOT_FOUND, Code::kNotFound},
                                         {StatusCode::PERMISSION_DENIED, Code::kPermissionDenied},
                                         {StatusCode::RESOURCE_EXHAUSTED, Code::kResourceExhausted},
                                         {StatusCode::UNIMPLEMENTED, Code::kUnimplemented},
                                         {StatusCode::INTERNAL, Code::kInternal},
                                         {StatusCode::UNAVAILABLE, Code::kUnavailable},
                                         {StatusCode::UNAUTHENTICATED, Code::kUnauthenticated}};
  for (const auto& [status, code] : codes) {
    server_.status = {status, status == StatusCode::OK ? "" : "why"};
    const Answer answer = ask();
    EXPECT_EQ(answer.code, code) << status;
    EXPECT_EQ(answer.message, status == StatusCode::OK ? "" : "why") << status;
  }
}

TEST_P(GrpcAnswersTest, OnlyRawBytesOfAKnownTypeAreAnOutput) {
  EXPECT_FALSE(ask().first);
  add_output("FP99").add_shape(1);
  EXPECT_FALSE(ask().first) << "no bytes";
  server_.response.add_raw_output_contents("1234");
  EXPECT_FALSE(ask().first) << "an unknown type";
  server_.response.mutable_outputs(0)->set_datatype("INT32");
  ASSERT_TRUE(ask().first);
  EXPECT_EQ(ask().first->data, "1234");
  EXPECT_EQ(ask().first->type, engine::DataType::kInt32);
  EXPECT_FALSE(ask(false).first) << "not asked for";
}

TEST_P(GrpcAnswersTest, AnAnswerMayExceedTheUsualLimitOfGrpc) {
  constexpr std::size_t kBytes = 5 << 20;
  add_output("UINT8").add_shape(kBytes);
  server_.response.add_raw_output_contents(std::string(kBytes, 'x'));
  const Answer answer = ask();
  ASSERT_TRUE(answer.first) << answer.message;
  EXPECT_EQ(answer.first->data.size(), kBytes);
}

TEST_P(GrpcAnswersTest, AServerWithoutMetadataIsNamedWithItsReason) {
  server_.status = {grpc::StatusCode::UNAVAILABLE, "not yet"};
  try {
    (void)connect_grpc({"127.0.0.1", server_.port(), true})->inputs("m");
    FAIL();
  } catch (const base::RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr(" (not yet); start one with"));
  }
}

}  // namespace
}  // namespace sluice::server::workload
