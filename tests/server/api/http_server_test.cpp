#include "http_server_test.hpp"

#include "base/error.hpp"
#include "support/eventually.hpp"

namespace sluice::server::api {
namespace {

using nlohmann::json;
using test::eventually;
using test::http_request;
using namespace std::chrono_literals;

TEST_F(HttpServerTest, AnswersAnInferenceInJson) {
  const auto reply = infer("echo", echo_body(R"(,"id":"seven")"));
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("content-type"), "application/json");
  EXPECT_EQ(json::parse(reply.body),
            json::parse(R"({"model_name":"echo","model_version":"1","id":"seven",
    "outputs":[{"name":"IN","datatype":"INT32","shape":[1,2],"data":[1,2]}]})"));
}

TEST_F(HttpServerTest, AnswersInBinaryIfAsked) {
  const std::string head =
      R"({"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"parameters":{"binary_data_size":4}}],)"
      R"("parameters":{"binary_data_output":true}})";
  const float value = 1.5F;
  std::string body = head;
  body.append(reinterpret_cast<const char*>(&value), sizeof(value));
  const auto reply =
      ask(http_request("POST", kEcho, body,
                       "Inference-Header-Content-Length: " + std::to_string(head.size()) + "\r\n"));
  ASSERT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("content-type"), "application/octet-stream");
  const auto json_bytes = std::stoul(reply.headers.at("inference-header-content-length"));
  ASSERT_EQ(reply.body.size(), json_bytes + 4);
  EXPECT_EQ(reply.body.substr(json_bytes), body.substr(head.size()));
}

// A server that learns of a request when its body has arrived announces too late.
TEST_F(HttpServerTest, AnnouncesBeforeTheBody) {
  auto connection = connect();
  const std::string request = http_request("POST", kEcho, echo_body());
  const auto body_at = request.find("\r\n\r\n") + 4;
  connection.send(request.substr(0, body_at));
  ASSERT_TRUE(eventually([&] { return service_.announced().size() == 1; }));
  EXPECT_EQ(service_.announced()[0].model, "echo");
  EXPECT_EQ(service_.announced()[0].bytes, echo_body().size());
  EXPECT_EQ(service_.open_announcements(), 1U);
  connection.send(request.substr(body_at));
  EXPECT_EQ(connection.reply()->status, 200);
  ASSERT_EQ(service_.requests().size(), 1U);
  EXPECT_EQ(service_.requests()[0].announced, 1U);
}

TEST_F(HttpServerTest, PassesPriorityAndTheEarliestDeadline) {
  infer("echo", echo_body(R"(,"parameters":{"priority":3,"timeout":2000000,"slo_ms":500.0})"));
  ASSERT_EQ(service_.requests().size(), 1U);
  const auto request = service_.requests()[0];
  EXPECT_EQ(request.priority, 3U);
  EXPECT_EQ(request.deadline_ns - request.headers_ns, 500'000'000U);
}

TEST_F(HttpServerTest, EachRefusalHasItsStatus) {
  const std::map<Code, int> statuses = {
      {Code::kInvalidArgument, 400},   {Code::kNotFound, 404},         {Code::kUnavailable, 503},
      {Code::kResourceExhausted, 429}, {Code::kDeadlineExceeded, 504}, {Code::kCancelled, 499},
      {Code::kUnimplemented, 501},     {Code::kInternal, 500}};
  for (const auto& [code, status] : statuses) {
    const auto id = std::to_string(static_cast<int>(code));
    const auto reply = infer("failing", echo_body(",\"id\":\"" + id + "\""));
    EXPECT_EQ(reply.status, status);
    EXPECT_EQ(error_of(reply), "as asked");
  }
}

// A client that sleeps less than the server asked for comes back too early, so seconds are rounded
// up.
TEST_F(HttpServerTest, TheMessageOfARefusalIsShort) {
  const auto reply =
      infer("echo", R"({"inputs":[{"name":"IN","datatype":")" + std::string(100'000, 'x') +
                        R"(","shape":[1,2],"data":[1,2]}]})");
  EXPECT_EQ(reply.status, 400);
  EXPECT_LT(reply.body.size(), 2000U);
}

TEST_F(HttpServerTest, SaysWhenToRetry) {
  const auto reply = infer("refusing", echo_body());
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.headers.at("retry-after"), "2");
  EXPECT_EQ(reply.headers.at("retry-after-ms"), "1500");
}

TEST_F(HttpServerTest, RefusesWhatItDoesNotServe) {
  EXPECT_EQ(ask(http_request("GET", "/nothing")).status, 404);
  EXPECT_EQ(ask(http_request("GET", "/v2/models/echo/nothing")).status, 404);
  EXPECT_EQ(ask(http_request("GET", "/v2/models/nothing")).status, 404);
  EXPECT_EQ(ask(http_request("GET", "/v2/models/echo/versions/2")).status, 404);
  EXPECT_EQ(ask(http_request("GET", "/v2/systemsharedmemory/status")).status, 501);
  const auto reply = ask(http_request("GET", kEcho));
  EXPECT_EQ(reply.status, 405);
  EXPECT_EQ(reply.headers.at("allow"), "POST");
  EXPECT_EQ(ask(http_request("ST", "/v2/scheduler")).status, 405);
  EXPECT_EQ(ask(http_request("POST", kEcho, "x", "Content-Encoding: br\r\n")).status, 415);
  EXPECT_EQ(ask("nonsense\r\n\r\n").status, 400);
  EXPECT_EQ(ask("GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(20000, 'x') + "\r\n\r\n").status,
            431);
}

TEST_F(HttpServerTest, StopCancelsWhatDoesNotEnd) {
  auto stuck = connect();
  stuck.send(http_request("POST", "/v2/models/stuck/infer", echo_body()));
  auto idle = connect();
  ASSERT_TRUE(eventually([&] { return service_.unanswered() == 1; }));
  server_->stop(50ms);
  EXPECT_EQ(service_.cancelled(), 1U);
  EXPECT_TRUE(idle.closed(5s));
}

TEST_F(HttpServerTest, StopLetsARequestEnd) {
  auto slow = connect();
  slow.send(http_request("POST", "/v2/models/slow/infer", echo_body()));
  ASSERT_TRUE(eventually([&] { return service_.requests().size() == 1; }));
  server_->stop(10s);
  EXPECT_EQ(slow.reply()->status, 200);
  EXPECT_EQ(service_.cancelled(), 0U);
}

TEST_F(HttpServerTest, APortInUseIsAnError) {
  HttpServer::Options options;
  options.port = static_cast<std::uint16_t>(server_->port());
  EXPECT_THROW(HttpServer(service_, options), base::RunError);
  options.address = "nonsense";
  EXPECT_THROW(HttpServer(service_, options), base::RunError);
}

TEST_F(HttpServerTest, DescribesTheServer) {
  EXPECT_EQ(ask(http_request("GET", "/v2/health/live")).status, 200);
  EXPECT_EQ(ask(http_request("GET", "/v2/health/ready")).status, 200);
  EXPECT_EQ(ask(http_request("GET", "/v2/models/add/ready")).status, 200);
  EXPECT_EQ(ask(http_request("GET", "/v2/models/add/versions/1/ready")).status, 200);
  EXPECT_EQ(json::parse(ask(http_request("GET", "/v2/models/stats")).body)["model_stats"].size(),
            7U);
  const auto metrics = ask(http_request("GET", "/metrics"));
  EXPECT_EQ(metrics.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(metrics.body, service_.metrics());
  EXPECT_EQ(json::parse(ask(http_request("GET", "/v2/sluice/status")).body)["scheduler"], "EDF");
}

TEST_F(HttpServerTest, LoadsAndUnloads) {
  EXPECT_EQ(ask(http_request("POST", "/v2/repository/models/echo/unload")).status, 200);
  EXPECT_EQ(ask(http_request("GET", "/v2/models/echo/ready")).status, 503);
  EXPECT_EQ(infer("echo", echo_body()).status, 503);
  const auto index =
      json::parse(ask(http_request("POST", "/v2/repository/index", R"({"ready":true})")).body);
  EXPECT_EQ(index.size(), 6U);
  EXPECT_EQ(ask(http_request("POST", "/v2/repository/models/echo/load", "{}")).status, 200);
  EXPECT_EQ(infer("echo", echo_body()).status, 200);
  EXPECT_EQ(ask(http_request("POST", "/v2/repository/models/none/load")).status, 404);
  EXPECT_EQ(ask(http_request("POST", "/v2/repository/models/none/unload")).status, 404);
  EXPECT_EQ(ask(http_request("POST", "/v2/repository/models/echo/load",
                             R"({"parameters":{"config":"{}"}})"))
                .status,
            501);
}

TEST_F(HttpServerTest, ChangesTheScheduler) {
  EXPECT_EQ(ask(http_request("GET", "/v2/scheduler")).body, R"({"policy":"EDF"})");
  EXPECT_EQ(ask(http_request("POST", "/v2/scheduler", R"({"policy":"FIFO"})")).body,
            R"({"policy":"FIFO"})");
  EXPECT_EQ(ask(http_request("POST", "/v2/scheduler", R"({"policy":"none"})")).status, 400);
  EXPECT_EQ(ask(http_request("POST", "/v2/scheduler", "[]")).status, 400);
}

}  // namespace
}  // namespace sluice::server::api
