#pragma once
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "fake_service.hpp"
#include "server/api/colserve.grpc.pb.h"
#include "server/api/grpc_server.hpp"
#include "server/api/kserve.grpc.pb.h"

namespace sluice::server::api {

inline inference::ModelInferRequest echo_request(const std::string& model = "echo") {
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

  using RawCall =
      grpc::ClientReaderWriter<inference::ModelInferRequest, inference::ModelInferResponse>;
  /// A call whose messages the test sends one by one, or not at all.
  std::unique_ptr<RawCall> call(const char* path, grpc::ClientContext& context) {
    using Factory = grpc::internal::ClientReaderWriterFactory<inference::ModelInferRequest,
                                                              inference::ModelInferResponse>;
    const grpc::internal::RpcMethod method(path, grpc::internal::RpcMethod::BIDI_STREAMING,
                                           channel_);
    return std::unique_ptr<RawCall>(Factory::Create(channel_.get(), method, &context));
  }

  static constexpr std::uint64_t kMemory = 30'000'000;
  test::FakeService service_{kMemory};
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> stub_;
  std::unique_ptr<colserve::ColServe::Stub> colserve_;
  inference::ModelInferResponse response_;
};

}  // namespace sluice::server::api
