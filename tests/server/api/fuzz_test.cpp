// Damaged requests. SLUICE_FUZZ_SECONDS and SLUICE_FUZZ_SEED: see fuzz().
#include <google/protobuf/stubs/logging.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/client_unary_call.h>
#include <gtest/gtest.h>

#include <set>

#include "fake_service.hpp"
#include "mutator.hpp"
#include "raw_http.hpp"
#include "server/api/colserve.pb.h"
#include "server/api/compression.hpp"
#include "server/api/grpc_server.hpp"
#include "server/api/http_server.hpp"
#include "server/api/json_codec.hpp"
#include "server/api/kserve.pb.h"
#include "server/api/proto_codec.hpp"
#include "server/api/refusal.hpp"
#include "support/eventually.hpp"

namespace sluice::server::api {
namespace {

using test::eventually;
using test::fuzz;
using test::http_request;
using test::Mutator;
using test::RawHttp;
using namespace std::chrono_literals;

const std::vector<std::string>& json_corpus() {
  static const std::vector<std::string> kCorpus = {
      R"({"id":"7","inputs":[{"name":"IN","datatype":"FP32","shape":[1,2],"data":[1.5,2]}]})",
      R"({"inputs":[{"name":"IN","datatype":"BYTES","shape":[2],"data":["a","b"]}]})",
      R"({"inputs":[{"name":"IN","datatype":"INT8","shape":[2,2],"data":[[1,-2],[3,4]]}]})",
      R"({"inputs":[{"name":"IN","datatype":"BOOL","shape":[0],"data":[]}],"outputs":[{"name":"IN"}]})",
      R"({"inputs":[{"name":"IN","datatype":"UINT8","shape":[4],"parameters":{"binary_data_size":4}}],)"
      R"("parameters":{"binary_data_output":true,"priority":1,"timeout":5000000,"slo_ms":2.5}}abcd)",
      R"({"inputs":[{"name":"IN","datatype":"BYTES","shape":[1],"parameters":{"binary_data_size":5}}],)"
      R"("outputs":[{"name":"IN","parameters":{"binary_data":true}}]})"
      "\x01\0\0\0a",
  };
  return kCorpus;
}

std::vector<std::string> proto_corpus() {
  std::vector<std::string> corpus;
  for (const std::string type : {"FP32", "INT32", "BYTES", "UINT8"}) {
    inference::ModelInferRequest request;
    request.set_model_name("echo");
    request.set_id("7");
    (*request.mutable_parameters())["timeout"].set_int64_param(5'000'000);
    auto& input = *request.add_inputs();
    input.set_name("IN");
    input.set_datatype(type);
    input.add_shape(1);
    input.add_shape(1);
    request.add_outputs()->set_name("IN");
    auto typed = request;
    request.add_raw_input_contents(type == "BYTES" ? std::string("\0\0\0\0", 4) : "abcd");
    corpus.push_back(request.SerializeAsString());
    auto& contents = *typed.mutable_inputs(0)->mutable_contents();
    if (type == "FP32") contents.add_fp32_contents(1.5F);
    if (type == "INT32") contents.add_int_contents(-5);
    if (type == "BYTES") contents.add_bytes_contents("abc");
    if (type == "UINT8") contents.add_uint_contents(200);
    corpus.push_back(typed.SerializeAsString());
  }
  return corpus;
}

/// A request that a codec has accepted is sound.
void expect_sound(const Request& request) {
  std::set<std::string> names;
  for (const auto& input : request.inputs) {
    EXPECT_EQ(engine::check_data(input.type, input.shape, input.data), "");
    EXPECT_TRUE(names.insert(input.name).second);
  }
}

TEST(Fuzz, JsonBodies) {
  fuzz(json_corpus(), [](Mutator& mutator) {
    const auto text = std::make_shared<std::string>(mutator.next());
    std::optional<std::size_t> json_bytes;
    // Mostly where the JSON ends.
    if (mutator.below(2) == 0) json_bytes = text->rfind('}') + 1 + mutator.below(2);
    try {
      auto decoded = decode_infer({*text, text}, json_bytes, 1);
      decoded.request.model = "m";
      check_request(decoded.request);
      expect_sound(decoded.request);
      (void)encode_infer(echo_of(decoded.request),
                         {decoded.request.inputs, decoded.request.storage}, decoded.format);
    } catch (const Refusal& refusal) {
      EXPECT_FALSE(refusal.status.ok());
      EXPECT_FALSE(refusal.status.message.empty());
    }
  });
}

TEST(Fuzz, Messages) {
  // As GrpcServer does: a line for each damaged message.
  google::protobuf::SetLogHandler(nullptr);
  fuzz(proto_corpus(), [](Mutator& mutator) {
    grpc::Slice slice(mutator.next());
    grpc::ByteBuffer buffer(&slice, 1);
    try {
      const auto request = decode_infer(buffer, 1);
      expect_sound(request);
      (void)encode_infer(echo_of(request), {request.inputs, request.storage});
    } catch (const Refusal& refusal) {
      EXPECT_FALSE(refusal.status.ok());
      EXPECT_FALSE(refusal.status.message.empty());
    }
  });
}

std::vector<std::string> http_corpus() {
  std::vector<std::string> corpus = {
      http_request("GET", "/v2"),
      http_request("GET", "/v2/models/echo/versions/1/config"),
      http_request("GET", "/v2/models/stats"),
      http_request("GET", "/metrics"),
      http_request("POST", "/v2/repository/index", R"({"ready":true})"),
      http_request("POST", "/v2/repository/models/echo/load", R"({"parameters":{}})"),
      http_request("POST", "/v2/scheduler", R"({"policy":"FIFO"})"),
  };
  for (const std::string& body : json_corpus()) {
    const std::string length = std::to_string(body.rfind('}') + 1);
    const std::string header = "Inference-Header-Content-Length: " + length + "\r\n";
    corpus.push_back(http_request("POST", "/v2/models/echo/infer", body, header));
    corpus.push_back(http_request("POST", "/v2/models/slow/infer", body, header));
    corpus.push_back(http_request("POST", "/v2/models/echo/infer", deflate(body, Encoding::kGzip),
                                  header + "Content-Encoding: gzip\r\n"));
  }
  return corpus;
}

/// The body of the last reply is not read: what counts is that the server goes on.
void send_damaged(Mutator& mutator, int port) {
  RawHttp connection(port);
  std::string request = mutator.next();
  const auto body = request.find("\r\n\r\n");
  // Mostly with the right length, so that the damage is found behind the headers.
  if (mutator.below(4) != 0 && body != std::string::npos) {
    request = http_request("POST", "/v2/models/echo/infer", request.substr(body + 4));
  }
  connection.send(request);
  switch (mutator.below(4)) {
    case 0:
      return connection.reset();
    case 1:
      return;
    default:
      connection.half_close();
  }
  while (connection.reply()) continue;
}

TEST(Fuzz, HttpConnections) {
  test::FakeService service;
  {
    HttpServer::Options options;
    options.progress_timeout = 2s;
    options.idle_timeout = 2s;
    HttpServer server(service, options);
    fuzz(http_corpus(), [&](Mutator& mutator) { send_damaged(mutator, server.port()); });
    RawHttp connection(server.port());
    connection.send(http_request("GET", "/v2"));
    EXPECT_EQ(connection.reply()->status, 200);
    EXPECT_TRUE(eventually([&] { return service.open_announcements() == 0; }));
  }
  EXPECT_EQ(service.open_announcements(), 0U);
  EXPECT_EQ(service.wrong_announcements(), 0U);
}

/// Sends damaged messages to calls, each of which is answered. An answer of kInternal is expected
/// only where gRPC itself parses the message.
void fuzz_calls(const std::vector<std::string>& corpus, const std::vector<std::string>& calls,
                bool grpc_parses) {
  test::FakeService service;
  {
    GrpcServer server(service, {});
    const auto channel = grpc::CreateChannel("127.0.0.1:" + std::to_string(server.port()),
                                             grpc::InsecureChannelCredentials());
    fuzz(corpus, [&](Mutator& mutator) {
      const grpc::internal::RpcMethod method(calls[mutator.below(calls.size())].c_str(),
                                             grpc::internal::RpcMethod::NORMAL_RPC, channel);
      grpc::Slice slice(mutator.next());
      grpc::ByteBuffer request(&slice, 1);
      grpc::ByteBuffer response;
      grpc::ClientContext context;
      const bool hasty = mutator.below(8) == 0;
      const std::chrono::microseconds limit(hasty ? mutator.below(500) : 10'000'000);
      context.set_deadline(std::chrono::system_clock::now() + limit);
      const auto status =
          grpc::internal::BlockingUnaryCall(channel.get(), method, &context, request, &response);
      EXPECT_TRUE(hasty || status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED);
      EXPECT_TRUE(grpc_parses || status.error_code() != grpc::StatusCode::INTERNAL)
          << status.error_message();
    });
    EXPECT_TRUE(eventually([&] { return service.unanswered() == 0; }));
    EXPECT_TRUE(eventually([&] { return service.open_announcements() == 0; }));
  }
  EXPECT_EQ(service.open_announcements(), 0U);
  EXPECT_EQ(service.wrong_announcements(), 0U);
}

TEST(Fuzz, GrpcCalls) {
  fuzz_calls(proto_corpus(), {"/inference.GRPCInferenceService/ModelInfer"}, false);
}

std::vector<std::string> colserve_corpus() {
  std::vector<std::string> corpus;
  for (const std::string model : {"echo", "slow", "add"}) {
    colserve::InferRequest request;
    request.set_model(model);
    for (int i = 0; i < (model == "add" ? 2 : 1); ++i) {
      auto& input = *request.add_inputs();
      input.set_dtype("int32");
      input.add_shape(model == "add" ? 16 : 2);
      input.set_data(std::string(model == "add" ? 64 : 8, '\1'));
    }
    corpus.push_back(request.SerializeAsString());
  }
  colserve::TrainRequest train;
  train.set_model("job");
  train.set_args("batch-size=64, num-epoch=2");
  corpus.push_back(train.SerializeAsString());
  return corpus;
}

TEST(Fuzz, ColserveCalls) {
  google::protobuf::SetLogHandler(nullptr);
  fuzz_calls(colserve_corpus(),
             {"/colserve.ColServe/Inference", "/ColServe/Inference", "/colserve.ColServe/Train",
              "/colserve.ColServe/TrainStop", "/colserve.ColServe/SetScheduler",
              "/colserve.ColServe/Status", "/inference.GRPCInferenceService/RepositoryModelLoad"},
             true);
}

}  // namespace
}  // namespace sluice::server::api
