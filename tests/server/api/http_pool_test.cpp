// Where the work of a call over HTTP is done. The pool of these tests is busy until they free it,
// so what is done meanwhile was done in the thread of the connection.
#include <future>
#include <thread>

#include "http_server_test.hpp"
#include "server/api/compression.hpp"
#include "server/api/http_api.hpp"
#include "support/eventually.hpp"

namespace sluice::server::api {
namespace {

using test::eventually;
using test::http_request;

struct Asked {
  HttpHead head;
  std::string body;
};

Asked json_call(std::size_t bytes, const std::string& model = "echo") {
  Asked asked;
  asked.head.method = "POST";
  asked.head.target = "/v2/models/" + model + "/infer";
  asked.body = echo_body();
  asked.body.resize(std::max(bytes, asked.body.size()), ' ');
  return asked;
}

Asked compressed(Asked asked, Encoding encoding) {
  asked.head.content_encoding = to_string(encoding);
  asked.body = deflate(asked.body, encoding);
  return asked;
}

Asked binary_call(std::size_t bytes, const std::string& output = "true") {
  Asked asked = json_call(0);
  asked.body = R"({"inputs":[{"name":"IN","datatype":"UINT8","shape":[1,)" + std::to_string(bytes) +
               R"(],"parameters":{"binary_data_size":)" + std::to_string(bytes) +
               R"(}}],"parameters":{"binary_data_output":)" + output + "}}";
  asked.head.inference_header_length = std::to_string(asked.body.size());
  asked.body.resize(asked.body.size() + bytes, 'x');
  return asked;
}

class HttpPool : public testing::Test {
 protected:
  HttpPool() {
    pool_.post(0, [this, freed = free_.get_future().share()] {
      busy_ = true;
      freed.wait();
    });
    EXPECT_TRUE(eventually([&] { return busy_.load(); }));
  }
  ~HttpPool() override {
    free();
    pool_.end();
    call_.reset();
    EXPECT_EQ(service_.open_announcements(), 0U);
    EXPECT_EQ(service_.wrong_announcements(), 0U);
  }

  /// Runs the call. Returns whether it is answered at once.
  bool run(Asked asked) {
    replies_.clear();
    asked.head.content_length = asked.body.size();
    auto kept = std::make_shared<const std::string>(std::move(asked.body));
    call_ = api_.begin(asked.head);
    call_->run({*kept, kept}, [this](MakeReply make) {
      const std::lock_guard lock(mutex_);
      replies_.push_back(make());
    });
    return answers() == 1;
  }
  std::size_t answers() {
    const std::lock_guard lock(mutex_);
    return replies_.size();
  }
  void free() {
    if (!std::exchange(freed_, true)) free_.set_value();
  }
  /// Of the call, once the pool is free.
  HttpReply reply() {
    free();
    EXPECT_TRUE(eventually([&] { return answers() == 1; }));
    const std::lock_guard lock(mutex_);
    return replies_.empty() ? HttpReply{} : replies_.front();
  }

  std::promise<void> free_;
  bool freed_ = false;
  std::atomic<bool> busy_ = false;
  std::mutex mutex_;
  std::vector<HttpReply> replies_;
  test::FakeService service_;
  Workers workers_;
  CodecPool pool_{1};
  HttpApi api_{service_, workers_, pool_, std::size_t{16} << 20, {}};
  std::shared_ptr<HttpCall> call_;
};

// Prevents: a small request waits for the large ones of others.
TEST_F(HttpPool, SmallCallsNeedNoThreadOfThePool) {
  EXPECT_TRUE(run(json_call(0)));
  EXPECT_TRUE(run(json_call(10'000)));
  EXPECT_TRUE(run(compressed(json_call(10'000), Encoding::kGzip)));
  EXPECT_TRUE(run(compressed(json_call(60'000), Encoding::kDeflate)));
  EXPECT_TRUE(run(binary_call(1'000'000))) << "an image";
  Asked probe;
  probe.head.method = "GET";
  probe.head.accept_encoding = "gzip";
  for (const char* path : {"/v2/health/live", "/metrics", "/v2/models/stats"}) {
    probe.head.target = path;
    EXPECT_TRUE(run(probe)) << path;
    EXPECT_EQ(reply().status, 200) << path;
  }
}

class HttpPoolBodies : public HttpPool, public testing::WithParamInterface<int> {};

/// Calls with more work than a thread of connections may do.
Asked large_call(int which) {
  switch (which) {
    case 0:
      return json_call(100'000);
    case 1:
      return compressed(json_call(1'000'000), Encoding::kGzip);  // Tiny when it arrives.
    case 2:
      return compressed(json_call(1'000'000), Encoding::kDeflate);
    case 3:
      return binary_call(8'000'000);
    case 4:
      return json_call(0, "big");  // The reply is large.
    case 5:
      return binary_call(100'000, "false");
    default: {
      Asked asked = binary_call(100'000);
      asked.head.accept_encoding = "gzip";
      return asked;
    }
  }
}

// Prevents: 10 MB of JSON, a body that becomes large when it is inflated, or a large reply keep the
// other connections of their thread waiting, and the server is taken for dead.
TEST_P(HttpPoolBodies, LargeWorkIsDoneInThePool) {
  EXPECT_FALSE(run(large_call(GetParam())));
  EXPECT_EQ(reply().status, 200);
}

INSTANTIATE_TEST_SUITE_P(All, HttpPoolBodies, testing::Range(0, 7));

TEST_F(HttpPool, ARefusalInThePoolIsCountedAndAnswered) {
  Asked bad = json_call(100'000);
  bad.body[0] = '[';
  EXPECT_FALSE(run(bad));
  EXPECT_EQ(reply().status, 400);
  EXPECT_EQ(service_.refusals().size(), 1U);
  Asked bomb = compressed(json_call(17 << 20), Encoding::kGzip);
  run(bomb);
  EXPECT_EQ(reply().status, 400);
  EXPECT_EQ(service_.refusals().size(), 2U);
  EXPECT_TRUE(service_.requests().empty());
}

// Prevents: the server parses the bodies of clients that gave up, and so has no time for others.
TEST_F(HttpPool, ARequestWhoseClientHasLeftIsNotParsed) {
  EXPECT_FALSE(run(json_call(100'000)));
  call_->cancel();
  EXPECT_EQ(reply().status, 499);
  EXPECT_TRUE(service_.requests().empty());
  const auto code = std::to_string(static_cast<int>(Code::kCancelled));
  EXPECT_EQ(service_.refusals(), std::vector<std::string>{"echo " + code + " client"});
}

// Prevents: the connection is gone when its request comes out of the pool.
TEST_F(HttpPool, ACallMayBeGivenUpWhileItIsInThePool) {
  EXPECT_FALSE(run(json_call(100'000)));
  call_.reset();
  EXPECT_EQ(reply().status, 200);
}

// Prevents: large bodies for calls that need none, which would be parsed by a thread of
// connections.
TEST_F(HttpServerTest, OtherCallsTakeSmallBodies) {
  const std::string large(100'000, ' ');
  for (const char* path :
       {"/v2/repository/index", "/v2/scheduler", "/v2/repository/models/echo/load"}) {
    EXPECT_EQ(ask(http_request("POST", path, large)).status, 413) << path;
    const std::string packed = deflate(large, Encoding::kGzip);
    EXPECT_EQ(ask(http_request("POST", path, packed, "Content-Encoding: gzip\r\n")).status, 400)
        << path;
  }
  EXPECT_EQ(ask("GET /v2 HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n").status, 413);
}

// Prevents: as many large bodies as there are threads stop the probes, and the server is restarted.
TEST_F(HttpServerTest, ManyLargeBodiesKeepNobodyWaiting) {
  HttpServer::Options options;
  options.threads = 2;
  restart(options);
  const std::string body = echo_body(R"(,"id":"keeps the thread")") + std::string(100'000, ' ');
  std::vector<test::RawHttp> large;
  for (int i = 0; i < 10; ++i) {
    large.push_back(connect());
    if (i % 2 == 0) {
      large.back().send(http_request("POST", kEcho, body));
    } else {
      large.back().send(http_request("POST", kEcho, deflate(body, Encoding::kGzip),
                                     "Content-Encoding: gzip\r\n"));
    }
  }
  ASSERT_TRUE(eventually([&] { return service_.loading() >= 2; }));
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(ask(http_request("GET", "/v2/health/live")).status, 200);
    EXPECT_EQ(infer("echo", echo_body()).status, 200);
  }
  service_.end_loads();
  for (auto& each : large) EXPECT_EQ(each.reply()->status, 200);
}

// Prevents: the end of the server waits indefinitely for a request in the pool, or forgets it.
TEST_F(HttpServerTest, TheEndWaitsForWhatIsInThePool) {
  const std::string body = echo_body(R"(,"id":"keeps the thread")") + std::string(100'000, ' ');
  std::vector<test::RawHttp> large;
  for (int i = 0; i < 10; ++i) {
    large.push_back(connect());
    large.back().send(http_request("POST", kEcho, body));
  }
  ASSERT_TRUE(
      eventually([&] { return service_.announced().size() == 10 && service_.loading() > 0; }));
  std::jthread freeing([&] { service_.end_loads(); });
  server_->stop(std::chrono::seconds(0));
  EXPECT_EQ(service_.open_announcements(), 0U);
}

}  // namespace
}  // namespace sluice::server::api
