// What bodies, responses and loads may take of the server's memory and threads.
#include <thread>

#include "http_server_test.hpp"
#include "server/api/compression.hpp"
#include "server/api/workers.hpp"
#include "support/eventually.hpp"

namespace sluice::server::api {
namespace {

using test::eventually;
using test::http_request;
using test::RawHttp;
using namespace std::chrono_literals;

TEST_F(HttpServerTest, ABodyOverTheLimitIsRefusedBeforeItArrives) {
  HttpServer::Options options;
  options.max_request_bytes = 1000;
  restart(options);
  const auto reply = ask("POST " + kEcho + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1001\r\n\r\n");
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
  connection.send("POST " + kEcho + " HTTP/1.1\r\nHost: x\r\nContent-Length: 10000000\r\n\r\n");
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
  first.send("POST " + kEcho + " HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n");
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
  stuck.send(
      "POST /v2/models/stuck/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: " +
      std::to_string(head.size()) +
      "\r\nContent-Length: " + std::to_string(head.size() + 60'000'000) + "\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return service_.memory().used() > 60'000'000; }));
  EXPECT_EQ(
      ask("POST " + kEcho + " HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n").status,
      429);
  EXPECT_EQ(infer("echo", padded).status, 200) << "what fits is served";
  stuck.send(head + std::string(60'000'000, '0'));
  ASSERT_TRUE(eventually([&] { return service_.unanswered() == 1; }));
  EXPECT_GT(service_.memory().used(), 60'000'000U);
  EXPECT_EQ(
      ask("POST " + kEcho + " HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n").status,
      429);
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

const std::string kAskBig =
    http_request("POST", "/v2/models/big/infer",
                 R"({"inputs":[{"name":"IN","datatype":"FP32","shape":[1,1],"data":[1]}]})");

// Prevents: a response that is refused because its tensors and its JSON text do not fit together.
TEST(HttpLimits, TheTensorsOfAResponseAreFreedOnceItIsText) {
  test::FakeService service(10'000'000);  // The tensors have 4 MB, the text 7 to 8 MB.
  HttpServer server(service, {});
  RawHttp connection(server.port());
  connection.send(kAskBig);
  EXPECT_EQ(connection.reply()->status, 200);
}

// Prevents: responses that nobody reads fill the memory of the machine.
TEST_F(HttpServerTest, UnreadResponsesAreCounted) {
  std::vector<RawHttp> clients;
  for (int i = 0; i < 30; ++i) {
    clients.push_back(connect());
    clients.back().send(kAskBig);
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

}  // namespace
}  // namespace sluice::server::api
