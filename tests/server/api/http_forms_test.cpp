// Forms of HTTP that other clients and proxies use.
#include "http_server_test.hpp"
#include "server/api/compression.hpp"
#include "support/eventually.hpp"

namespace sluice::server::api {
namespace {

using nlohmann::json;
using test::eventually;
using test::http_request;
using namespace std::chrono_literals;

std::string chunked(const std::string& head, const std::vector<std::string>& chunks) {
  std::string request = head + "Transfer-Encoding: chunked\r\n\r\n";
  for (const std::string& chunk : chunks) {
    std::array<char, 20> size{};
    std::snprintf(size.data(), size.size(), "%zx\r\n", chunk.size());
    request += size.data() + chunk + "\r\n";
  }
  return request + "0\r\n\r\n";
}

const std::string kPostEcho = "POST " + kEcho + " HTTP/1.1\r\nHost: x\r\n";

// Prevents: a client of HTTP/2 behind a proxy, which does not say its length, is refused.
TEST_F(HttpServerTest, TakesABodyInChunks) {
  const std::string body = echo_body();
  auto connection = connect();
  for (int i = 0; i < 3; ++i) {
    connection.send(chunked(kPostEcho, {body.substr(0, 1), body.substr(1, 20), body.substr(21)}));
    const auto reply = connection.reply();
    ASSERT_TRUE(reply) << i;
    EXPECT_EQ(reply->status, 200) << reply->body;
    EXPECT_EQ(json::parse(reply->body)["outputs"][0]["data"], json::array({1, 2}));
  }
  EXPECT_TRUE(eventually([&] { return service_.memory().used() == 0; }));
}

TEST_F(HttpServerTest, PipelinedRequestsInChunksAreAnsweredInOrder) {
  auto connection = connect();
  std::string requests;
  for (int i = 0; i < 5; ++i) {
    requests += chunked(kPostEcho, {echo_body(",\"id\":\"" + std::to_string(i) + "\"")});
  }
  connection.send(requests);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(json::parse(connection.reply()->body)["id"], std::to_string(i));
  }
}

// Prevents: chunks as a way around the limits of bodies.
TEST_F(HttpServerTest, ChunksAreBounded) {
  HttpServer::Options options;
  options.max_request_bytes = 100'000;
  options.max_arriving_bytes = 60'000;
  restart(options);
  const std::string piece(50'000, ' ');
  EXPECT_EQ(ask(chunked(kPostEcho, {piece, piece, piece})).status, 429);
  options.max_arriving_bytes = 1'000'000;
  restart(options);
  EXPECT_EQ(ask(chunked(kPostEcho, {piece, piece, piece})).status, 413);
  EXPECT_EQ(ask(kPostEcho + "Transfer-Encoding: chunked\r\n\r\nnonsense\r\n").status, 400);
  EXPECT_TRUE(eventually([&] { return service_.memory().used() == 0; }));
  EXPECT_EQ(service_.open_announcements(), 0U);
  // Prevents: a body that is taken for the next request.
  EXPECT_EQ(ask(kPostEcho + "Transfer-Encoding: gzip\r\n\r\nGET /v2 HTTP/1.1\r\n\r\n").status, 501);
}

// Prevents: extensions and trailers of chunks, which no limit of bodies counts, fill the memory.
TEST_F(HttpServerTest, WhatIsAroundChunksIsBounded) {
  const std::string head = kPostEcho + "Transfer-Encoding: chunked\r\n\r\n";
  for (const char* const around : {"5;name=", "0\r\nname: "}) {
    auto connection = connect();
    connection.send(head + around + std::string(1 << 20, 'x'));
    const auto reply = connection.reply();
    ASSERT_TRUE(reply) << around;
    EXPECT_EQ(reply->status, 400) << around;
  }
}

TEST_F(HttpServerTest, ChunksWaitForContinue) {
  auto connection = connect();
  const std::string whole = chunked(kPostEcho + "Expect: 100-continue\r\n", {echo_body()});
  const auto body = whole.find("\r\n\r\n") + 4;
  connection.send(whole.substr(0, body));
  EXPECT_EQ(connection.reply()->status, 100);
  connection.send(whole.substr(body));
  EXPECT_EQ(connection.reply()->status, 200);
  EXPECT_EQ(ask(http_request("POST", kEcho, echo_body(), "Expect: wonders\r\n")).status, 417);
}

// Prevents: `ab -k` and old proxies, which wait for an end that does not come.
TEST_F(HttpServerTest, AClientOfHttp10KeepsItsConnectionIfItAsks) {
  auto connection = connect();
  for (int i = 0; i < 2; ++i) {
    connection.send("GET /v2/health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    const auto reply = connection.reply();
    ASSERT_TRUE(reply) << i;
    EXPECT_EQ(reply->status, 200);
    EXPECT_EQ(reply->headers.at("connection"), "keep-alive");
  }
  connection.send("GET /v2/health/live HTTP/1.0\r\n\r\n");
  EXPECT_EQ(connection.reply()->status, 200);
  EXPECT_TRUE(connection.closed(5s));
}

// Prevents: compressed bodies that the other side takes for plain ones, or for damaged ones.
TEST_F(HttpServerTest, BodiesAreCompressedBothWays) {
  json request = json::parse(echo_body());
  request["inputs"][0]["shape"] = {1, 1000};
  request["inputs"][0]["data"] = std::vector<int>(1000, 7);
  const std::string plain = infer("echo", request.dump()).body;
  for (const auto encoding : {Encoding::kGzip, Encoding::kDeflate}) {
    const std::string name(to_string(encoding));
    const std::string headers =
        "Content-Encoding: " + name + "\r\nAccept-Encoding: " + name + "\r\n";
    const auto reply = ask(http_request("POST", kEcho, deflate(request.dump(), encoding), headers));
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(reply.headers.at("content-encoding"), name);
    EXPECT_EQ(reply.body.starts_with("\x1f\x8b"), name == "gzip");
    EXPECT_LT(reply.body.size(), plain.size());
    EXPECT_EQ(inflate(reply.body, plain.size()), plain);
    // A call that is answered at once.
    const std::string policy = deflate(R"({"policy":"FIFO"})", encoding);
    const auto small = ask(http_request("POST", "/v2/scheduler", policy, headers));
    EXPECT_EQ(small.body, R"({"policy":"FIFO"})") << "too small to be compressed";
    EXPECT_EQ(small.headers.count("content-encoding"), 0U);
    const auto large =
        ask(http_request("GET", "/v2/models/stats", "", headers.substr(headers.find("Accept"))));
    EXPECT_EQ(large.headers.at("content-encoding"), name);
  }
}

// Prevents: HAProxy, whose probes are HEAD, takes the server for down.
TEST_F(HttpServerTest, HeadIsGetWithoutABody) {
  auto connection = connect();
  connection.send("HEAD /v2/health/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  const std::string all = connection.rest();
  EXPECT_EQ(all.substr(0, 12), "HTTP/1.1 200");
  EXPECT_NE(all.find("Content-Length: 14\r\n"), std::string::npos) << all;
  EXPECT_EQ(all.substr(all.size() - 4), "\r\n\r\n") << "has a body";
  auto other = connect();
  other.send("HEAD " + kEcho + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(other.rest().substr(0, 12), "HTTP/1.1 405");
}

// Prevents: a refusal whose body is missing, or that speaks HTTP/1.0, because of the request
// before.
TEST_F(HttpServerTest, ARequestTakesNothingFromTheOneBefore) {
  auto connection = connect();
  connection.send(
      "HEAD /v2/health/live HTTP/1.0\r\nConnection: keep-alive\r\n\r\nnonsense\r\n\r\n");
  const std::string all = connection.rest();
  EXPECT_NE(all.find("HTTP/1.1 400"), std::string::npos) << all;
  EXPECT_NE(all.find("not an HTTP request"), std::string::npos) << all;
}

// Prevents: a client that reads the answer as JSON, as KServe's own does, fails.
TEST_F(HttpServerTest, ProbesAreAnsweredInJson) {
  const auto body = [this](const std::string& path) {
    return json::parse(ask(http_request("GET", path)).body);
  };
  EXPECT_EQ(body("/v2/health/live"), json({{"live", true}}));
  EXPECT_EQ(body("/v2/health/ready"), json({{"ready", true}}));
  EXPECT_EQ(body("/v2/models/echo/ready"), json({{"name", "echo"}, {"ready", true}}));
  EXPECT_EQ(ask(http_request("GET", "/v2/models/none/ready")).status, 404);
  EXPECT_EQ(ask(http_request("GET", "/v2/models/echo/versions/2/ready")).status, 503);
  service_.set_ready(false);
  EXPECT_EQ(body("/v2/health/ready"), json({{"ready", false}}));
  EXPECT_EQ(ask(http_request("GET", "/v2/health/ready")).status, 503);
}

TEST_F(HttpServerTest, AFaultWithoutABodyKeepsTheConnection) {
  auto connection = connect();
  for (int i = 0; i < 2; ++i) {
    connection.send(http_request("GET", "/nothing"));
    const auto reply = connection.reply();
    ASSERT_TRUE(reply) << i;
    EXPECT_EQ(reply->status, 404);
  }
}

// Prevents: the last requests of clients that do not know yet that the server ends are cut off.
TEST_F(HttpServerTest, AServerThatLeavesSaysSoAndAnswers) {
  auto open = connect();
  open.send(http_request("GET", "/v2"));
  EXPECT_EQ(open.reply()->headers.count("connection"), 0U);
  server_->leave();
  auto later = connect();
  for (auto* each : {&open, &later}) {
    each->send(http_request("GET", "/v2"));
    const auto reply = each->reply();
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->headers.at("connection"), "close");
    EXPECT_TRUE(each->closed(5s));
  }
}

TEST_F(HttpServerTest, TheEndWaitsForOpenConnections) {
  auto open = connect();
  open.send(http_request("GET", "/v2"));
  EXPECT_EQ(open.reply()->status, 200);
  auto slow = connect();
  slow.send(http_request("POST", "/v2/models/slow/infer", echo_body()));
  ASSERT_TRUE(eventually([&] { return service_.requests().size() == 1; }));
  std::jthread end([&] { EXPECT_TRUE(server_->finish(std::chrono::steady_clock::now() + 20s)); });
  EXPECT_EQ(slow.reply()->status, 200);
  open.send(http_request("POST", kEcho, echo_body()));
  const auto reply = open.reply();
  ASSERT_TRUE(reply) << "a request on an open connection is lost";
  EXPECT_EQ(reply->status, 200);
  end.join();
  EXPECT_EQ(service_.cancelled(), 0U);
}

}  // namespace
}  // namespace sluice::server::api
