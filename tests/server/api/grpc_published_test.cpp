#include <thread>

#include "grpc_server_test.hpp"
#include "server/api/colserve_published.grpc.pb.h"
#include "support/eventually.hpp"

namespace sluice::server::api {
namespace {

using grpc::StatusCode;
using test::eventually;
using namespace std::chrono_literals;

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
  service_.set_ready(false);
  grpc::ClientContext later;
  ASSERT_TRUE(stub->GetServerStatus(&later, {}, &status).ok());
  EXPECT_EQ(status.status(), "not ready");

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
  colserve::InferResult expected;
  expected.set_result("ok");
  *expected.add_outputs() = input;
  EXPECT_EQ(result.SerializeAsString(), expected.SerializeAsString()) << result.DebugString();

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
  job.set_args("1");
  grpc::ClientContext failing;
  const grpc::Status failed = colserve_->Train(&failing, job, &train);
  EXPECT_EQ(failed.error_code(), StatusCode::INTERNAL);
  EXPECT_EQ(failed.error_message(), "exited with 1");
  grpc::ClientContext stopping;
  EXPECT_TRUE(colserve_->TrainStop(&stopping, job, &train).ok());
  EXPECT_EQ(train.result(), "stopped");
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

}  // namespace
}  // namespace sluice::server::api
