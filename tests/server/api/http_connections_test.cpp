// The life of a connection: its requests, slow and idle clients, and too many of them.
#include <sys/resource.h>
#include <unistd.h>

#include <thread>

#include "base/fd.hpp"
#include "http_server_test.hpp"
#include "support/eventually.hpp"

namespace sluice::server::api {
namespace {

using nlohmann::json;
using test::eventually;
using test::http_request;
using namespace std::chrono_literals;

TEST_F(HttpServerTest, SendsContinueToAClientThatWaits) {
  auto connection = connect();
  const std::string body = echo_body();
  connection.send("POST " + kEcho +
                  " HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: " +
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
  EXPECT_TRUE(connection.closed(test::kPatience));
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
  connection.send("POST " + kEcho + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf");
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
  restart(options);
  auto headers = connect();
  headers.send("POST " + kEcho + " HTTP/1.1\r\nHost: x\r\n");
  auto body = connect();
  body.send("POST " + kEcho + " HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf");
  EXPECT_EQ(headers.reply()->status, 408);
  EXPECT_EQ(body.reply()->status, 408);
  options.idle_timeout = 300ms;
  restart(options);
  auto silent = connect();
  EXPECT_TRUE(silent.closed(test::kPatience));
  EXPECT_EQ(service_.open_announcements(), 0U);
}

// A byte now and then is progress, but not indefinitely. Prevents: 1,024 such clients keep all
// others out.
TEST_F(HttpServerTest, ABodyThatDripsIsSentAway) {
  HttpServer::Options options;
  options.body_timeout = 300ms;
  restart(options);
  auto connection = connect();
  // Large: what is announced gives no time, only what arrives.
  connection.send("POST " + kEcho + " HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n");
  std::jthread dripping([&](const std::stop_token& stop) {
    while (!stop.stop_requested() && connection.send("x")) std::this_thread::sleep_for(10ms);
  });
  const auto reply = connection.reply();
  ASSERT_TRUE(reply);
  EXPECT_EQ(reply->status, 408);
}

// Prevents: a large body over a slow network never gets through.
TEST_F(HttpServerTest, ABodyThatArrivesHasTime) {
  HttpServer::Options options;
  options.body_timeout = 1s;
  restart(options);
  auto connection = connect();
  const std::string body = echo_body() + std::string(2 << 20, ' ');
  std::string request = http_request("POST", kEcho, body);
  const char last = request.back();
  request.pop_back();
  connection.send(request);
  std::this_thread::sleep_for(1500ms);
  connection.send(std::string(1, last));
  EXPECT_EQ(connection.reply()->status, 200);
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
  options.spare_after = 0ms;
  options.threads = 1;  // With two, the end of a response may be seen after the next request.
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
  EXPECT_TRUE(first.closed(test::kPatience));
  second.send(http_request("GET", "/v2"));
  EXPECT_EQ(second.reply()->status, 200) << "used more recently";
  EXPECT_EQ(service_.unanswered(), 1U) << "a request lost its connection";
}

// Prevents: a client that sends one request after another loses its connection between two, and
// does not know whether the next one has run.
TEST_F(HttpServerTest, ABusyClientKeepsItsConnection) {
  HttpServer::Options options;
  options.max_connections = 2;
  options.spare_after = 60s;
  restart(options);
  auto first = connect();
  auto second = connect();
  for (int i = 0; i < 5; ++i) {
    for (auto* each : {&first, &second}) {
      each->send(http_request("GET", "/v2"));
      const auto reply = each->reply();
      ASSERT_TRUE(reply) << i;
      EXPECT_EQ(reply->status, 200);
    }
    EXPECT_EQ(connect().reply()->status, 503) << "the new one is refused";
  }
}

// Prevents: the limit of an earlier request, whose timer still runs, ends a connection that is in
// use.
TEST_F(HttpServerTest, ALimitBeginsAgainWithEachRequest) {
  HttpServer::Options options;
  options.idle_timeout = options.progress_timeout = 3s;
  restart(options);
  auto client = connect();
  for (int i = 0; i < 8; ++i) {
    client.send(http_request("GET", "/v2"));
    const auto reply = client.reply();
    ASSERT_TRUE(reply) << i;
    std::this_thread::sleep_for(450ms);
  }
  EXPECT_TRUE(client.closed(test::kPatience)) << "idle for longer than the limit";
}

// Prevents: clients that never end their headers, or only read their refusal, keep others out.
TEST_F(HttpServerTest, AConnectionWithoutAWholeHeadMakesWay) {
  HttpServer::Options options;
  options.max_connections = 2;
  options.spare_after = 0ms;
  restart(options);
  auto dripping = connect();
  dripping.send("GET /v2 HTTP/1.1\r\nHost: x\r\nX: ");
  auto refused = connect();
  refused.send("POST " + kEcho + " HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n");
  EXPECT_EQ(refused.reply()->status, 413);
  // A moment after its reply, the refused connection still counts as busy.
  const auto served = [&] {
    auto connection = connect();
    connection.send(http_request("GET", "/v2"));
    const auto reply = connection.reply();
    return reply && reply->status == 200;
  };
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(eventually(served));
  EXPECT_TRUE(dripping.closed(test::kPatience));
  EXPECT_TRUE(refused.closed(test::kPatience));
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
  EXPECT_TRUE(idle.closed(test::kPatience));
}

}  // namespace
}  // namespace sluice::server::api
