#include "server/api/http_server.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "fake_service.hpp"
#include "raw_http.hpp"
#include "server/api/compression.hpp"
#include "server/api/workers.hpp"
#include "support/eventually.hpp"

namespace sluice::server::api {
namespace {

using nlohmann::json;
using test::eventually;
using test::http_request;
using test::RawHttp;
using namespace std::chrono_literals;

const std::string kEcho = "/v2/models/echo/infer";

/// An input of INT32 values in JSON.
std::string echo_body(const std::string& more = "") {
  return R"({"inputs":[{"name":"IN","datatype":"INT32","shape":[1,2],"data":[1,2]}])" + more + "}";
}

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() { restart({}); }

  /// Whatever a test does, each announcement has ended once.
  ~HttpServerTest() override {
    service_.end_loads();
    server_.reset();
    EXPECT_EQ(service_.open_announcements(), 0U);
    EXPECT_EQ(service_.wrong_announcements(), 0U);
  }

  void restart(const HttpServer::Options& options) {
    server_.reset();
    server_ = std::make_unique<HttpServer>(service_, options);
  }

  RawHttp connect() { return RawHttp(server_->port()); }

  RawHttp::Reply ask(const std::string& request) {
    auto connection = connect();
    connection.send(request);
    const auto reply = connection.reply();
    EXPECT_TRUE(reply) << request.substr(0, 200);
    return reply.value_or(RawHttp::Reply{});
  }

  RawHttp::Reply infer(const std::string& model, const std::string& body) {
    return ask(http_request("POST", "/v2/models/" + model + "/infer", body));
  }

  static constexpr std::uint64_t kMemory = 100'000'000;
  test::FakeService service_{kMemory};
  std::unique_ptr<HttpServer> server_;
};

std::string error_of(const RawHttp::Reply& reply) {
  return json::parse(reply.body).value("error", "");
}

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
  EXPECT_EQ(
      ask("POST " + kEcho + " HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n").status,
      411);
  EXPECT_EQ(ask(http_request("POST", kEcho, "x", "Content-Encoding: br\r\n")).status, 415);
  EXPECT_EQ(ask("nonsense\r\n\r\n").status, 400);
  EXPECT_EQ(ask("GET / HTTP/1.1\r\nX: " + std::string(20000, 'x') + "\r\n\r\n").status, 431);
}

TEST_F(HttpServerTest, ABodyOverTheLimitIsRefusedBeforeItArrives) {
  HttpServer::Options options;
  options.max_request_bytes = 1000;
  restart(options);
  const auto reply = ask("POST " + kEcho + " HTTP/1.1\r\nContent-Length: 1001\r\n\r\n");
  EXPECT_EQ(reply.status, 413);
  EXPECT_EQ(reply.headers.at("connection"), "close");
  EXPECT_TRUE(service_.announced().empty());
}

TEST_F(HttpServerTest, AnInflatedBodyHasTheSameLimit) {
  HttpServer::Options options;
  options.max_request_bytes = 10'000;
  restart(options);
  const std::string body = deflate(echo_body() + std::string(10'000, ' '), Encoding::kGzip);
  const auto reply = ask(http_request("POST", kEcho, body, "Content-Encoding: gzip\r\n"));
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(error_of(reply), "the inflated body has more than 10000 bytes");
}

// If the server closed the connection at once, the kernel would reset it, and the client would lose
// the reply.
TEST_F(HttpServerTest, ARefusalReachesAClientThatStillSends) {
  HttpServer::Options options;
  options.max_request_bytes = 1000;
  restart(options);
  auto connection = connect();
  connection.send("POST " + kEcho + " HTTP/1.1\r\nContent-Length: 10000000\r\n\r\n");
  for (int i = 0; i < 3; ++i) {
    std::this_thread::sleep_for(50ms);
    EXPECT_TRUE(connection.send(std::string(100'000, 'x')));
  }
  const auto reply = connection.reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 413);
}

// Many clients with large bodies must not take more memory than one limit for all.
TEST_F(HttpServerTest, ArrivingBodiesShareALimit) {
  HttpServer::Options options;
  options.max_arriving_bytes = 1000;
  restart(options);
  auto first = connect();
  first.send("POST " + kEcho + " HTTP/1.1\r\nContent-Length: 900\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return service_.announced().size() == 1; }));
  EXPECT_EQ(infer("echo", std::string(200, ' ')).status, 429);
  first.send(std::string(900, ' '));
  EXPECT_EQ(first.reply()->status, 400);
  EXPECT_EQ(infer("echo", std::string(200, ' ')).status, 400);
}

// Prevents: bodies that take any amount of memory because only their tensors count. The refusal
// comes at the headers.
TEST_F(HttpServerTest, WholeBodiesAreCountedUntilTheyAreAnswered) {
  HttpServer::Options options;
  options.max_request_bytes = kMemory;
  restart(options);
  const std::string padded = echo_body() + std::string(1'000'000, ' ');
  const std::string head = R"({"inputs":[{"name":"IN","datatype":"FP32","shape":[1,15000000],)"
                           R"("parameters":{"binary_data_size":60000000}}]})";
  auto stuck = connect();
  stuck.send("POST /v2/models/stuck/infer HTTP/1.1\r\nInference-Header-Content-Length: " +
             std::to_string(head.size()) +
             "\r\nContent-Length: " + std::to_string(head.size() + 60'000'000) + "\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return service_.memory().used() > 60'000'000; }));
  EXPECT_EQ(ask("POST " + kEcho + " HTTP/1.1\r\nContent-Length: 50000000\r\n\r\n").status, 429);
  EXPECT_EQ(infer("echo", padded).status, 200) << "what fits is served";
  stuck.send(head + std::string(60'000'000, '0'));
  ASSERT_TRUE(eventually([&] { return service_.unanswered() == 1; }));
  EXPECT_GT(service_.memory().used(), 60'000'000U);
  EXPECT_EQ(ask("POST " + kEcho + " HTTP/1.1\r\nContent-Length: 50000000\r\n\r\n").status, 429);
  stuck.reset();
  EXPECT_TRUE(eventually([&] { return service_.memory().used() == 0; }));
}

// Prevents: megabytes of JSON text that stay in memory as long as the eight bytes that it had.
TEST_F(HttpServerTest, ABodyInJsonIsFreedOnceItIsRead) {
  auto stuck = connect();
  stuck.send(
      http_request("POST", "/v2/models/stuck/infer", echo_body() + std::string(10'000'000, ' ')));
  ASSERT_TRUE(eventually([&] { return service_.unanswered() == 1; }));
  EXPECT_TRUE(eventually([&] { return service_.memory().used() <= 64; }));
  EXPECT_GE(service_.memory().used(), 8U);
  stuck.reset();
  EXPECT_TRUE(eventually([&] { return service_.memory().used() == 0; }));
}

// Prevents: a small body that becomes a large one which nobody counts.
TEST_F(HttpServerTest, AnInflatedBodyIsCounted) {
  HttpServer::Options options;
  options.max_request_bytes = 2 * kMemory;
  restart(options);
  const std::string body = deflate(echo_body() + std::string(kMemory, ' '), Encoding::kGzip);
  const auto reply = ask(http_request("POST", kEcho, body, "Content-Encoding: gzip\r\n"));
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(infer("echo", echo_body()).status, 200);
  EXPECT_TRUE(eventually([&] { return service_.memory().used() == 0; }));
}

// Prevents: responses that nobody reads fill the memory of the machine.
TEST_F(HttpServerTest, UnreadResponsesAreCounted) {
  const std::string ask_big =
      http_request("POST", "/v2/models/big/infer",
                   R"({"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[1]}]})");
  std::vector<RawHttp> clients;
  for (int i = 0; i < 30; ++i) {
    clients.push_back(connect());
    clients.back().send(ask_big);
  }
  // Each response has 7 to 8 MB of JSON text, of which the kernel takes a part.
  ASSERT_TRUE(eventually([&] { return service_.memory().used() > kMemory - 10'000'000; }));
  int refused = 0;
  for (RawHttp& client : clients) {
    const auto reply = client.reply();
    ASSERT_TRUE(reply);
    if (reply->status == 429) ++refused;
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 30);
  EXPECT_TRUE(eventually([&] { return service_.memory().used() == 0; }));
}

TEST_F(HttpServerTest, SendsContinueToAClientThatWaits) {
  auto connection = connect();
  const std::string body = echo_body();
  connection.send("POST " + kEcho + " HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: " +
                  std::to_string(body.size()) + "\r\n\r\n");
  EXPECT_EQ(connection.reply()->status, 100);
  connection.send(body);
  EXPECT_EQ(connection.reply()->status, 200);
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  auto connection = connect();
  std::string requests;
  for (int i = 0; i < 20; ++i) {
    const std::string model = i % 3 == 0 ? "slow" : "echo";
    requests += http_request("POST", "/v2/models/" + model + "/infer",
                             echo_body(",\"id\":\"" + std::to_string(i) + "\""));
  }
  connection.send(requests);
  for (int i = 0; i < 20; ++i) {
    const auto reply = connection.reply();
    ASSERT_TRUE(reply) << i;
    EXPECT_EQ(json::parse(reply->body)["id"], std::to_string(i));
  }
}

TEST_F(HttpServerTest, KeepsAConnectionUntilTheClientSaysClose) {
  auto connection = connect();
  connection.send(http_request("GET", "/v2"));
  EXPECT_EQ(connection.reply()->status, 200);
  connection.send(http_request("GET", "/v2", "", "Connection: close\r\n"));
  EXPECT_EQ(connection.reply()->status, 200);
  EXPECT_TRUE(connection.closed(5s));
}

TEST_F(HttpServerTest, AClientThatLeavesCancelsItsRequest) {
  auto connection = connect();
  connection.send(http_request("POST", "/v2/models/stuck/infer", echo_body()));
  ASSERT_TRUE(eventually([&] { return service_.unanswered() == 1; }));
  connection.reset();
  EXPECT_TRUE(eventually([&] { return service_.cancelled() == 1; }));
}

// A half-closed connection looks as a closed one does, but its client still reads.
TEST_F(HttpServerTest, AHalfClosedConnectionGetsItsAnswer) {
  auto connection = connect();
  connection.send(http_request("POST", "/v2/models/stuck/infer", echo_body()));
  connection.half_close();
  const auto reply = connection.reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 499);
  EXPECT_EQ(service_.cancelled(), 1U);
}

TEST_F(HttpServerTest, ABodyThatEndsEarlyIsForgotten) {
  auto connection = connect();
  connection.send("POST " + kEcho + " HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf");
  connection.half_close();
  const auto reply = connection.reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(error_of(*reply), "the body ends after 4 of 100 bytes");
  EXPECT_EQ(service_.announced().size(), 1U);
  EXPECT_EQ(service_.open_announcements(), 0U);
}

TEST_F(HttpServerTest, ASlowClientIsSentAway) {
  HttpServer::Options options;
  options.progress_timeout = 100ms;
  options.idle_timeout = 300ms;
  restart(options);
  auto headers = connect();
  headers.send("POST " + kEcho + " HTTP/1.1\r\n");
  auto body = connect();
  body.send("POST " + kEcho + " HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf");
  auto silent = connect();
  EXPECT_EQ(headers.reply()->status, 408);
  EXPECT_EQ(body.reply()->status, 408);
  EXPECT_TRUE(silent.closed(5s));
  EXPECT_EQ(service_.open_announcements(), 0U);
}

// A byte now and then is progress, but not for ever.
TEST_F(HttpServerTest, ABodyThatDripsIsSentAway) {
  HttpServer::Options options;
  options.body_timeout = 300ms;
  restart(options);
  auto connection = connect();
  connection.send("POST " + kEcho + " HTTP/1.1\r\nContent-Length: 100000\r\n\r\n");
  std::jthread dripping([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && connection.send("x")) std::this_thread::sleep_for(10ms);
  });
  const auto reply = connection.reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 408);
}

TEST_F(HttpServerTest, ConnectionsOverTheLimitAreTurnedAway) {
  HttpServer::Options options;
  options.max_connections = 2;
  restart(options);
  auto first = connect();
  auto second = connect();
  first.send(http_request("POST", "/v2/models/stuck/infer", echo_body()));
  second.send(http_request("POST", "/v2/models/stuck/infer", echo_body()));
  ASSERT_TRUE(eventually([&] { return service_.unanswered() == 2; }));
  EXPECT_EQ(connect().reply()->status, 503);
  first.reset();
  EXPECT_TRUE(eventually([&] {
    auto third = connect();
    third.send(http_request("GET", "/v2"));
    const auto reply = third.reply();
    return reply && reply->status == 200;
  }));
}

// Prevents: as many idle clients as there are places keep all others out for ten minutes.
TEST_F(HttpServerTest, TheLongestIdleConnectionMakesWayForANewOne) {
  HttpServer::Options options;
  options.max_connections = 3;
  restart(options);
  auto busy = connect();
  busy.send(http_request("POST", "/v2/models/stuck/infer", echo_body()));
  ASSERT_TRUE(eventually([&] { return service_.unanswered() == 1; }));
  auto first = connect();
  auto second = connect();
  for (auto* idle : {&second, &first, &second}) {
    idle->send(http_request("GET", "/v2"));
    ASSERT_EQ(idle->reply()->status, 200);
  }
  EXPECT_EQ(ask(http_request("GET", "/v2")).status, 200);
  EXPECT_TRUE(first.closed(5s));
  second.send(http_request("GET", "/v2"));
  EXPECT_EQ(second.reply()->status, 200) << "used more recently";
  EXPECT_EQ(service_.unanswered(), 1U) << "a request lost its connection";
}

// Prevents: clients that never end their headers, or only read their refusal, keep others out.
TEST_F(HttpServerTest, AConnectionWithoutAWholeHeadMakesWay) {
  HttpServer::Options options;
  options.max_connections = 2;
  restart(options);
  auto dripping = connect();
  dripping.send("GET /v2 HTTP/1.1\r\nX: ");
  auto refused = connect();
  refused.send("POST " + kEcho + " HTTP/1.1\r\nContent-Length: 1000000000000\r\n\r\n");
  EXPECT_EQ(refused.reply()->status, 413);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask(http_request("GET", "/v2")).status, 200);
  EXPECT_TRUE(dripping.closed(5s));
  EXPECT_TRUE(refused.closed(5s));
}

// Prevents: the limit of descriptors is lower than that of connections, and idle clients use it up.
TEST_F(HttpServerTest, IdleConnectionsMakeWayWhenThereIsNoDescriptor) {
  // The second one leaves a descriptor to the next client: accept() needs one also to wait.
  auto idle = connect();
  auto next = connect();
  for (auto* each : {&idle, &next}) {
    each->send(http_request("GET", "/v2"));
    ASSERT_EQ(each->reply()->status, 200);
  }
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  // The client gets the last one.
  const auto last = static_cast<rlim_t>(base::Fd(dup(STDERR_FILENO)).get());
  const rlimit full{last + 1, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &full), 0);
  EXPECT_EQ(ask(http_request("GET", "/v2")).status, 200);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(idle.closed(5s));
}

// Prevents: two loads that wait, for memory or for one another, keep all other calls waiting, also
// the unload that would give them memory.
TEST_F(HttpServerTest, LoadsThatWaitKeepNobodyElseWaiting) {
  std::vector<RawHttp> loads;
  for (int i = 0; i < 3; ++i) {
    loads.push_back(connect());
    loads.back().send(http_request("POST", "/v2/repository/models/stuck/load"));
  }
  ASSERT_TRUE(eventually([&] { return service_.loading() == 3; }));
  EXPECT_EQ(ask(http_request("GET", "/v2/health/ready")).status, 200);
  EXPECT_EQ(ask(http_request("GET", "/v2/models/echo")).status, 200);
  EXPECT_EQ(infer("echo", echo_body()).status, 200);
  EXPECT_EQ(ask(http_request("POST", "/v2/repository/models/echo/unload")).status, 200);
  EXPECT_EQ(ask(http_request("POST", "/v2/repository/models/echo/load")).status, 200);
  service_.end_loads();
  for (auto& load : loads) EXPECT_EQ(load.reply()->status, 200);
}

// Prevents: a thread for each of any number of loads that wait.
TEST_F(HttpServerTest, LoadsThatWaitAreBounded) {
  std::vector<RawHttp> loads;
  for (std::size_t i = 0; i < Workers::kMostJobs; ++i) {
    loads.push_back(connect());
    loads.back().send(http_request("POST", "/v2/repository/models/stuck/load"));
  }
  ASSERT_TRUE(eventually([&] { return service_.loading() == Workers::kMostJobs; }));
  const auto refused = ask(http_request("POST", "/v2/repository/models/echo/load"));
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(error_of(refused), "64 loads and unloads wait already");
  service_.end_loads();
  for (auto& load : loads) EXPECT_EQ(load.reply()->status, 200);
  EXPECT_EQ(ask(http_request("POST", "/v2/repository/models/echo/load")).status, 200);
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
  EXPECT_EQ(json::parse(ask(http_request("GET", "/v2")).body)["name"], "sluice");
  EXPECT_EQ(ask(http_request("GET", "/v2/health/live")).status, 200);
  EXPECT_EQ(ask(http_request("GET", "/v2/health/ready")).status, 200);
  EXPECT_EQ(ask(http_request("GET", "/v2/models/add/ready")).status, 200);
  EXPECT_EQ(ask(http_request("GET", "/v2/models/add/versions/1/ready")).status, 200);
  const auto config = json::parse(ask(http_request("GET", "/v2/models/add/config")).body);
  EXPECT_EQ(config["backend"], "sluice");
  EXPECT_EQ(config["max_batch_size"], 8);
  EXPECT_EQ(config["input"][0],
            json::parse(R"({"name":"INPUT0","data_type":"TYPE_INT32","dims":[16]})"));
  const auto metadata = json::parse(ask(http_request("GET", "/v2/models/add")).body);
  EXPECT_EQ(metadata["inputs"][0]["shape"], json::parse("[-1,16]"));
  EXPECT_EQ(json::parse(ask(http_request("GET", "/v2/models/stats")).body)["model_stats"].size(),
            7U);
  const auto metrics = ask(http_request("GET", "/metrics"));
  EXPECT_EQ(metrics.headers.at("content-type"), "text/plain; version=0.0.4; charset=utf-8");
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
