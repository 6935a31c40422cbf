// Prevents: a field of a description that is empty, or has the value of another field, in one of
// the two protocols. So whole answers are compared.
#include "server/api/descriptions.hpp"

#include <google/protobuf/text_format.h>

#include "grpc_server_test.hpp"
#include "http_server_test.hpp"

namespace sluice::server::api {
namespace {

using nlohmann::json;
using Stub = inference::GRPCInferenceService::Stub;

class GrpcDescriptions : public GrpcServerTest {
 protected:
  template <typename Asked, typename Answer>
  void expect(grpc::Status (Stub::*method)(grpc::ClientContext*, const Asked&, Answer*),
              const std::string& asked, const std::string& answer) {
    using google::protobuf::TextFormat;
    Asked request;
    Answer expected;
    ASSERT_TRUE(TextFormat::ParseFromString(asked, &request));
    ASSERT_TRUE(TextFormat::ParseFromString(answer, &expected));
    grpc::ClientContext context;
    Answer said;
    EXPECT_TRUE((stub_.get()->*method)(&context, request, &said).ok());
    EXPECT_EQ(said.SerializeAsString(), expected.SerializeAsString()) << said.DebugString();
  }
};

TEST_F(GrpcDescriptions, OfTheServer) {
  expect(&Stub::ServerLive, "", "live: true");
  expect(&Stub::ServerReady, "", "ready: true");
  expect(&Stub::ServerMetadata, "",
         R"(name: "sluice" extensions: ["statistics", "model_configuration", "model_repository",
                                        "schedule_policy", "binary_tensor_data"] version: ")" +
             server_version() + '"');
}

TEST_F(GrpcDescriptions, OfAModel) {
  const std::string model = R"(name: "add" version: "1")";
  expect(&Stub::ModelReady, model, "ready: true");
  expect(&Stub::ModelMetadata, model,
         R"(name: "add" versions: "1" platform: "sluice_fake"
            inputs { name: "INPUT0" datatype: "INT32" shape: [-1, 16] }
            inputs { name: "INPUT1" datatype: "INT32" shape: [-1, 16] }
            outputs { name: "OUTPUT0" datatype: "INT32" shape: [-1, 16] }
            outputs { name: "OUTPUT1" datatype: "INT32" shape: [-1, 16] })");
  expect(&Stub::ModelConfig, model,
         R"(config { name: "add" platform: "sluice_fake" backend: "sluice" max_batch_size: 8
                     version_policy { latest { num_versions: 1 } } dynamic_batching {}
                     input { name: "INPUT0" data_type: TYPE_INT32 dims: 16 }
                     input { name: "INPUT1" data_type: TYPE_INT32 dims: 16 }
                     output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 16 }
                     output { name: "OUTPUT1" data_type: TYPE_INT32 dims: 16 } })");
}

TEST_F(GrpcDescriptions, OfWhatHasRun) {
  EXPECT_TRUE(infer(echo_request()).ok());
  auto other = echo_request();
  other.set_model_version("2");
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(infer(other).ok());
  expect(&Stub::ModelStatistics, R"(name: "echo")",
         R"(model_stats { name: "echo" version: "1" last_inference: 1700000000000
                          inference_count: 2 execution_count: 1 inference_stats {
              success { count: 1 ns: 1000 } fail { count: 2 ns: 2000 }
              queue { count: 1 ns: 100 } compute_input { count: 1 ns: 200 }
              compute_infer { count: 1 ns: 300 } compute_output { count: 1 ns: 400 } } })");
}

TEST_F(GrpcDescriptions, OfTheRepository) {
  EXPECT_TRUE(service_.unload("echo").ok());
  const std::string before = R"(models { name: "add" version: "1" state: "READY" }
                                models { name: "big" version: "1" state: "READY" })";
  const std::string after = R"(models { name: "failing" version: "1" state: "READY" }
                               models { name: "refusing" version: "1" state: "READY" }
                               models { name: "slow" version: "1" state: "READY" }
                               models { name: "stuck" version: "1" state: "READY" })";
  expect(&Stub::RepositoryIndex, "ready: true", before + after);
  expect(&Stub::RepositoryIndex, "",
         before +
             R"(models { name: "echo" version: "1" state: "UNAVAILABLE" reason: "unloaded" })" +
             after);
}

class HttpDescriptions : public HttpServerTest {
 protected:
  void expect(const char* method, const std::string& target, const json& answer) {
    EXPECT_EQ(json::parse(ask(test::http_request(method, target)).body), answer);
  }
};

TEST_F(HttpDescriptions, OfTheServer) {
  expect("GET", "/v2",
         {{"name", "sluice"},
          {"version", server_version()},
          {"extensions",
           {"statistics", "model_configuration", "model_repository", "schedule_policy",
            "binary_tensor_data"}}});
}

TEST_F(HttpDescriptions, OfAModel) {
  expect("GET", "/v2/models/add", json::parse(R"({
    "name": "add", "versions": ["1"], "platform": "sluice_fake",
    "inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [-1, 16]},
               {"name": "INPUT1", "datatype": "INT32", "shape": [-1, 16]}],
    "outputs": [{"name": "OUTPUT0", "datatype": "INT32", "shape": [-1, 16]},
                {"name": "OUTPUT1", "datatype": "INT32", "shape": [-1, 16]}]})"));
  expect("GET", "/v2/models/add/config", json::parse(R"({
    "name": "add", "platform": "sluice_fake", "backend": "sluice", "max_batch_size": 8,
    "version_policy": {"latest": {"num_versions": 1}}, "dynamic_batching": {},
    "input": [{"name": "INPUT0", "data_type": "TYPE_INT32", "dims": [16]},
              {"name": "INPUT1", "data_type": "TYPE_INT32", "dims": [16]}],
    "output": [{"name": "OUTPUT0", "data_type": "TYPE_INT32", "dims": [16]},
               {"name": "OUTPUT1", "data_type": "TYPE_INT32", "dims": [16]}]})"));
}

TEST_F(HttpDescriptions, OfWhatHasRun) {
  EXPECT_EQ(infer("echo", echo_body()).status, 200);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(infer("echo/versions/2", echo_body()).status, 404);
  expect("GET", "/v2/models/echo/stats", json::parse(R"({"model_stats": [{
    "name": "echo", "version": "1", "last_inference": 1700000000000,
    "inference_count": 2, "execution_count": 1, "inference_stats": {
      "success": {"count": 1, "ns": 1000}, "fail": {"count": 2, "ns": 2000},
      "queue": {"count": 1, "ns": 100}, "compute_input": {"count": 1, "ns": 200},
      "compute_infer": {"count": 1, "ns": 300}, "compute_output": {"count": 1, "ns": 400}}}]})"));
}

TEST_F(HttpDescriptions, OfTheRepository) {
  EXPECT_TRUE(service_.unload("echo").ok());
  json expected = json::array();
  for (const char* name : {"add", "big", "echo", "failing", "refusing", "slow", "stuck"}) {
    expected.push_back({{"name", name}, {"version", "1"}, {"state", "READY"}, {"reason", ""}});
  }
  expected[2]["state"] = "UNAVAILABLE";
  expected[2]["reason"] = "unloaded";
  expect("POST", "/v2/repository/index", expected);
}

}  // namespace
}  // namespace sluice::server::api
