#include "server/workload/client.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "server/api/grpc_server.hpp"
#include "server/api/http_server.hpp"
#include "server/workload/train_jobs.hpp"
#include "tests/server/api/fake_service.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::server::workload {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// Both protocols against the service of the api tests.
class ClientTest : public testing::TestWithParam<bool> {
 protected:
  ClientTest() { client_ = connect(port()); }
  ~ClientTest() override {
    client_.reset();
    grpc_.stop(1s);
    http_.stop(1s);
    EXPECT_EQ(service_.open_announcements(), 0U);
    EXPECT_EQ(service_.wrong_announcements(), 0U);
  }

  [[nodiscard]] int port() const { return GetParam() ? http_.port() : grpc_.port(); }
  static std::unique_ptr<Client> connect(int port) {
    const ClientOptions options{"127.0.0.1", port, true};
    return GetParam() ? connect_http(options) : connect_grpc(options);
  }

  std::size_t prepare(const std::string& model, std::optional<double> slo_ms = {}) {
    const float values[] = {1, 2};
    Input input{"IN", engine::DataType::kFp32, {1, 2}, std::string(sizeof(values), '\0')};
    std::memcpy(input.data.data(), values, sizeof(values));
    return client_->prepare({model, {input}, slo_ms});
  }

  struct Pending {
    std::shared_ptr<Call> call;
    std::future<Answer> answer;
  };
  Pending start(std::size_t request, Client::Begin begin = Client::Begin::kWhole) {
    auto promise = std::make_shared<std::promise<Answer>>();
    auto answer = promise->get_future();
    auto call =
        client_->start(request, begin, [promise](Answer a) { promise->set_value(std::move(a)); });
    return {std::move(call), std::move(answer)};
  }
  static Answer wait(Pending& pending) {
    if (pending.answer.wait_for(10s) != std::future_status::ready) {
      ADD_FAILURE() << "no answer";
      return {Code::kInternal, "no answer", 0, {}};
    }
    return pending.answer.get();
  }
  Answer ask(std::size_t request, Client::Begin begin = Client::Begin::kWhole) {
    Pending pending = start(request, begin);
    if (begin == Client::Begin::kHeaders) pending.call->send_body();
    return wait(pending);
  }

  test::FakeService service_;
  api::GrpcServer grpc_{service_, {}};
  api::HttpServer http_{service_, {}};
  std::unique_ptr<Client> client_;
};

INSTANTIATE_TEST_SUITE_P(Protocols, ClientTest, testing::Bool(),
                         [](const auto& each) { return each.param ? "http" : "grpc"; });

TEST_P(ClientTest, InputsComeFromTheMetadata) {
  const auto inputs = client_->inputs("add");
  ASSERT_EQ(inputs.size(), 2U);
  EXPECT_EQ(inputs[1].name, "INPUT1");
  EXPECT_EQ(inputs[1].type, engine::DataType::kInt32);
  EXPECT_THAT(inputs[1].shape, testing::ElementsAre(-1, 16));
}

TEST_P(ClientTest, UnknownModelIsNamedWithTheOneThatWasMeant) {
  try {
    (void)client_->inputs("ecko");
    FAIL();
  } catch (const base::RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr("the server has no model 'ecko', did you mean 'echo'? It "
                                        "has "));
  }
}

TEST_P(ClientTest, NoServerIsOneLine) {
  int closed = 0;
  {
    const api::GrpcServer ended(service_, {});
    closed = ended.port();
  }
  const auto client = connect(closed);
  try {
    (void)client->inputs("echo");
    FAIL();
  } catch (const base::RunError& error) {
    EXPECT_EQ(std::string(error.what()),
              "no server at 127.0.0.1:" + std::to_string(closed) +
                  " (Connection refused); start one with `sluice serve`, or give --host and -p");
  }
}

TEST_P(ClientTest, AnswerHasTheFirstOutput) {
  const auto before = base::monotonic_ns();
  const Answer answer = ask(prepare("echo"));
  EXPECT_EQ(answer.code, Code::kOk) << answer.message;
  EXPECT_GE(answer.end_ns, before);
  ASSERT_TRUE(answer.first);
  EXPECT_EQ(answer.first->type, engine::DataType::kFp32);
  float second = 0;
  ASSERT_EQ(answer.first->data.size(), 8U);
  std::memcpy(&second, answer.first->data.data() + 4, sizeof(second));
  EXPECT_EQ(second, 2);
}

TEST_P(ClientTest, AnswersOfAnySizeAreTaken) {
  const Answer answer = ask(prepare("big"));
  ASSERT_TRUE(answer.first) << answer.message;
  EXPECT_EQ(answer.first->data.size(), 4'000'000U);
}

TEST_P(ClientTest, RefusalHasItsCodeAndMessage) {
  const Answer answer = ask(prepare("refusing"));
  EXPECT_EQ(answer.code, Code::kResourceExhausted);
  EXPECT_THAT(answer.message, HasSubstr("the queue is full"));
}

TEST_P(ClientTest, SloReachesTheServerAsADeadline) {
  EXPECT_EQ(ask(prepare("echo", 5000)).code, Code::kOk);
  const Request request = service_.requests().at(0);
  const std::uint64_t limit_ns = request.deadline_ns - request.headers_ns;
  EXPECT_EQ(limit_ns, 5'000'000'000U);
  EXPECT_EQ(ask(prepare("echo")).code, Code::kOk);
  EXPECT_EQ(service_.requests().at(1).deadline_ns, 0U);
}

TEST_P(ClientTest, HeadersNameTheModelBeforeTheBody) {
  Pending pending = start(prepare("echo"), Client::Begin::kHeaders);
  ASSERT_TRUE(test::eventually([&] { return service_.announced().size() == 1; }));
  EXPECT_EQ(service_.announced()[0].model, "echo");
  EXPECT_TRUE(service_.requests().empty()) << "the body must wait";
  pending.call->send_body();
  EXPECT_EQ(wait(pending).code, Code::kOk);
  EXPECT_EQ(service_.requests().size(), 1U);
}

TEST_P(ClientTest, WholeRequestMayNameItsModelInTheHeaders) {
  EXPECT_EQ(ask(prepare("echo"), Client::Begin::kNamed).code, Code::kOk);
  EXPECT_EQ(service_.announced().at(0).model, "echo");
}

TEST_P(ClientTest, HeldRequestsFollowEachOther) {
  const std::size_t request = prepare("echo");
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(ask(request, Client::Begin::kHeaders).code, Code::kOk) << i;
  }
}

TEST_P(ClientTest, ManyAtOnceAreAllAnswered) {
  const std::size_t request = prepare("slow");
  std::vector<Pending> pending;
  for (int i = 0; i < 50; ++i) pending.push_back(start(request));
  for (Pending& each : pending) EXPECT_EQ(wait(each).code, Code::kOk);
}

TEST_P(ClientTest, CancelledRequestEndsSoon) {
  Pending pending = start(prepare("stuck"));
  ASSERT_TRUE(test::eventually([&] { return service_.unanswered() == 1; }));
  pending.call->cancel();
  EXPECT_EQ(wait(pending).code, Code::kCancelled);
  EXPECT_TRUE(test::eventually([&] { return service_.cancelled() == 1; }));
}

TEST_P(ClientTest, CancelledRequestWithoutItsBodyEndsSoon) {
  Pending pending = start(prepare("echo"), Client::Begin::kHeaders);
  ASSERT_TRUE(test::eventually([&] { return service_.announced().size() == 1; }));
  pending.call->cancel();
  EXPECT_EQ(wait(pending).code, Code::kCancelled);
  pending.call->send_body();
  EXPECT_TRUE(test::eventually([&] { return service_.open_announcements() == 0; }));
}

TEST_P(ClientTest, AServerThatEndsIsUnavailable) {
  Pending pending = start(prepare("stuck"));
  ASSERT_TRUE(test::eventually([&] { return service_.unanswered() == 1; }));
  grpc_.stop(0ms);
  http_.stop(0ms);
  EXPECT_NE(wait(pending).code, Code::kOk);
  EXPECT_EQ(ask(prepare("echo")).code, Code::kUnavailable);
}

TEST_P(ClientTest, ConnectionThatTheServerHasClosedIsReplaced) {
  const std::size_t request = prepare("echo");
  EXPECT_EQ(ask(request).code, Code::kOk);
  const auto kept = static_cast<std::uint16_t>(port());
  if (GetParam()) {
    http_.stop(0ms);
    const api::HttpServer again(service_, {.port = kept});
    EXPECT_EQ(ask(request).code, Code::kOk);
    client_.reset();
  } else {
    grpc_.stop(0ms);
    const api::GrpcServer again(service_, {.port = kept});
    EXPECT_TRUE(test::eventually([&] { return ask(request).code == Code::kOk; }));
    client_.reset();
  }
}

// Prevents: a run that ends stops the training jobs of other runs, because they have the same name.
TEST(TrainJobs, StopsOnlyItsOwnJobs) {
  test::FakeService service;
  api::GrpcServer grpc(service, {});
  const ClientOptions options{"127.0.0.1", grpc.port(), false};
  const auto theirs = begin_train_jobs(options, {"waits"}, "", false);
  const auto ours = begin_train_jobs(options, {"waits"}, "", false);
  ASSERT_TRUE(test::eventually([&] { return service.training() == 2; }));
  EXPECT_EQ(ours->stop().at(0).stopped, 1U);
  EXPECT_EQ(service.training(), 1U);
  EXPECT_FALSE(theirs->ended());
  EXPECT_EQ(theirs->stop().at(0).stopped, 1U);
}

}  // namespace
}  // namespace sluice::server::workload
