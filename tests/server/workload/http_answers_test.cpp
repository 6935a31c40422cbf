// The HTTP client against answers that `sluice serve` never gives. Prevents: a client that crashes,
// hangs or reports success when another server answers in another way.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <future>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "base/error.hpp"
#include "base/fd.hpp"
#include "server/workload/client.hpp"

namespace sluice::server::workload {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::string reply(int status, const std::string& body, const std::string& headers = "") {
  return "HTTP/1.1 " + std::to_string(status) +
         " x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + headers + "\r\n" + body;
}

std::string binary(const std::string& json, const std::string& data) {
  return reply(200, json + data,
               "Inference-Header-Content-Length: " + std::to_string(json.size()) + "\r\n");
}

/// Answers the requests of one connection after the other. It answers each as soon as it has the
/// headers; the body must be in the same packet.
class FixedServer {
 public:
  FixedServer() : listening_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (bind(listening_.get(), any, size) != 0 || listen(listening_.get(), 8) != 0 ||
        getsockname(listening_.get(), any, &size) != 0) {
      throw std::runtime_error("no address for the server");
    }
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~FixedServer() {
    shutdown(listening_.get(), SHUT_RDWR);
    thread_.join();
  }
  FixedServer(const FixedServer&) = delete;
  FixedServer& operator=(const FixedServer&) = delete;

  [[nodiscard]] int port() const { return port_; }
  /// To each request from now on whose head begins with this.
  void answer(const std::string& head, const std::string& bytes) {
    const std::lock_guard lock(mutex_);
    answers_[head] = bytes;
  }
  [[nodiscard]] int connections() const {
    const std::lock_guard lock(mutex_);
    return connections_;
  }
  [[nodiscard]] std::string last_request() const {
    const std::lock_guard lock(mutex_);
    return last_;
  }

 private:
  void serve() {
    while (true) {
      const base::Fd connection(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection) return;
      {
        const std::lock_guard lock(mutex_);
        ++connections_;
      }
      char bytes[4096];
      ssize_t got = 0;
      while ((got = recv(connection.get(), bytes, sizeof(bytes), 0)) > 0) {
        const std::string bytes_back = answer_to({bytes, static_cast<std::size_t>(got)});
        send(connection.get(), bytes_back.data(), bytes_back.size(), MSG_NOSIGNAL);
        if (bytes_back.find("close") != std::string::npos) break;
      }
    }
  }

  std::string answer_to(const std::string& request) {
    const std::lock_guard lock(mutex_);
    last_ = request;
    for (const auto& [head, bytes] : answers_) {
      if (request.starts_with(head)) return bytes;
    }
    return reply(500, "no answer for this request");
  }

  base::Fd listening_;
  int port_ = 0;
  mutable std::mutex mutex_;
  std::map<std::string, std::string> answers_;
  std::string last_;
  int connections_ = 0;
  std::thread thread_;
};

class HttpAnswersTest : public testing::Test {
 protected:
  std::string inputs_fault() {
    try {
      (void)client_->inputs("m");
    } catch (const base::RunError& error) {
      return error.what();
    }
    return "no fault";
  }
  Answer ask() {
    std::promise<Answer> promise;
    auto answer = promise.get_future();
    const auto call = client_->start(request_, Client::Begin::kWhole,
                                     [&](Answer a) { promise.set_value(std::move(a)); });
    if (answer.wait_for(10s) != std::future_status::ready) {
      ADD_FAILURE() << "no answer";
      call->cancel();
    }
    return answer.get();
  }
  Answer answer_to_infer(const std::string& bytes) {
    server_.answer("POST /v2/models/m/infer ", bytes);
    return ask();
  }

  FixedServer server_;
  std::unique_ptr<Client> client_ = connect_http({"127.0.0.1", server_.port(), true});
  std::size_t request_ = client_->prepare({"m", {}, {}});
};

TEST_F(HttpAnswersTest, EachStatusHasItsCode) {
  const std::map<int, Code> codes{{200, Code::kOk},
                                  {400, Code::kInvalidArgument},
                                  {401, Code::kUnauthenticated},
                                  {403, Code::kPermissionDenied},
                                  {404, Code::kNotFound},
                                  {418, Code::kInternal},
                                  {429, Code::kResourceExhausted},
                                  {499, Code::kCancelled},
                                  {500, Code::kInternal},
                                  {501, Code::kUnimplemented},
                                  {503, Code::kUnavailable},
                                  {504, Code::kDeadlineExceeded}};
  for (const auto& [status, code] : codes) {
    const Answer answer = answer_to_infer(reply(status, R"({"error": "why"})"));
    EXPECT_EQ(answer.code, code) << status;
    EXPECT_EQ(answer.message, status == 200 ? "" : "why") << status;
  }
  EXPECT_EQ(server_.connections(), 1);
}

TEST_F(HttpAnswersTest, AnErrorWithoutAMessageIsNamedByItsStatus) {
  for (const char* body : {"<html>", "", "[1]", R"({"error": 5})", R"({"message": "x"})"}) {
    EXPECT_EQ(answer_to_infer(reply(502, body)).message, "HTTP 502") << body;
  }
}

TEST_F(HttpAnswersTest, AnOutputThatIsNoBinaryDataIsLeftOut) {
  Answer answer = answer_to_infer(reply(200, R"({"outputs": []})"));
  EXPECT_EQ(answer.code, Code::kOk) << answer.message;
  EXPECT_FALSE(answer.first);
  const std::string json =
      R"({"outputs": [{"datatype": "FP99", "parameters": {"binary_data_size": 4}}]})";
  answer = answer_to_infer(binary(json, "1234"));
  EXPECT_EQ(answer.code, Code::kOk) << answer.message;
  EXPECT_FALSE(answer.first);
}

TEST_F(HttpAnswersTest, AnAnswerThatMakesNoSenseIsAnError) {
  const std::string json =
      R"({"outputs": [{"datatype": "FP32", "parameters": {"binary_data_size": 4}}]})";
  ASSERT_EQ(answer_to_infer(binary(json, "1234")).first->data, "1234");
  const std::string far = "Inference-Header-Content-Length: 100000\r\n";
  for (const std::string& bytes :
       {binary("{", ""), binary("{}", ""), binary(R"({"outputs": []})", ""), reply(200, json, far),
        reply(200, json, "Inference-Header-Content-Length: x\r\n")}) {
    const Answer answer = answer_to_infer(bytes);
    EXPECT_EQ(answer.code, Code::kInternal) << bytes;
    EXPECT_THAT(answer.message, HasSubstr("the answer cannot be read: ")) << bytes;
  }
}

// Prevents: time that is spent on outputs which nobody wants to see.
TEST_F(HttpAnswersTest, OutputsAreReadOnlyIfTheyAreAskedFor) {
  client_ = connect_http({"127.0.0.1", server_.port(), false});
  request_ = client_->prepare({"m", {}, {}});
  const Answer answer = answer_to_infer(binary("no JSON", "1234"));
  EXPECT_EQ(answer.code, Code::kOk) << answer.message;
  EXPECT_FALSE(answer.first);
}

TEST_F(HttpAnswersTest, AModelThatIsUnknownIsNamedWithoutAnIndexToo) {
  server_.answer("GET /v2/models/m ", reply(404, ""));
  for (const char* index : {"<html>", R"({"name": "a"})", "[]"}) {
    server_.answer("POST /v2/repository/index ", reply(200, index));
    EXPECT_EQ(inputs_fault(), "the server has no model 'm'") << index;
  }
  server_.answer("POST /v2/repository/index ", reply(200, R"([{"name": "a"}, {"name": "b"}])"));
  EXPECT_THAT(inputs_fault(), HasSubstr("a, b"));
}

TEST_F(HttpAnswersTest, MetadataThatCannotBeReadIsOneLine) {
  server_.answer("GET /v2/models/m ", reply(503, R"({"error": "not yet"})"));
  EXPECT_THAT(inputs_fault(), HasSubstr(" (not yet); start one with"));
  for (const char* body : {"<html>", "{}", R"({"inputs": [{"name": "a"}]})"}) {
    server_.answer("GET /v2/models/m ", reply(200, body));
    EXPECT_THAT(inputs_fault(), HasSubstr("no server at 127.0.0.1:")) << body;
  }
  server_.answer("GET /v2/models/m ",
                 reply(200, R"({"inputs": [{"name": "a", "datatype": "FP99", "shape": [1]}]})"));
  EXPECT_EQ(inputs_fault(), "model 'm', input 'a': unknown type 'FP99'");
}

TEST_F(HttpAnswersTest, WhatIsNoHttpIsUnavailable) {
  const Answer answer = answer_to_infer("close SMTP ready\r\n\r\n");
  EXPECT_EQ(answer.code, Code::kUnavailable);
  EXPECT_NE(answer.message, "");
}

TEST_F(HttpAnswersTest, AConnectionThatTheServerWillCloseIsNotUsedAgain) {
  const std::string last = reply(200, "{}", "Connection: close\r\n");
  EXPECT_EQ(answer_to_infer(last).code, Code::kOk);
  EXPECT_EQ(answer_to_infer(last).code, Code::kOk);
  EXPECT_EQ(server_.connections(), 2);
}

// Prevents: the next request on a connection whose server still waits for the body of the last one.
TEST_F(HttpAnswersTest, AConnectionWithoutItsBodyIsNotUsedAgain) {
  server_.answer("POST /v2/models/m/infer ", reply(429, "{}"));
  std::promise<Answer> promise;
  auto answer = promise.get_future();
  const auto call = client_->start(request_, Client::Begin::kHeaders,
                                   [&](Answer a) { promise.set_value(std::move(a)); });
  EXPECT_EQ(answer.get().code, Code::kResourceExhausted);
  call->send_body();
  EXPECT_EQ(ask().code, Code::kResourceExhausted);
  EXPECT_EQ(server_.connections(), 2);
}

TEST_F(HttpAnswersTest, NamesOfModelsAreEncoded) {
  request_ = client_->prepare({"a b/c-d_e.f~\xc3\xa9", {}, {}});
  server_.answer("POST /v2/models/a%20b%2Fc-d_e.f~%C3%A9/infer HTTP/1.1\r\n", reply(200, "{}"));
  EXPECT_EQ(ask().code, Code::kOk) << server_.last_request();
  EXPECT_THAT(server_.last_request(), HasSubstr("\r\nHost: 127.0.0.1\r\n"));
}

/// A server of the protocol without its extensions, as MLServer: it requires `data` of each input
/// and the type of the content.
class StrictServerTest : public HttpAnswersTest {
 protected:
  /// The head and the JSON of the request for one tensor of these bytes.
  std::pair<std::string, nlohmann::json> sent(const std::string& server, engine::DataType type,
                                              const std::string& bytes,
                                              std::optional<double> slo_ms = {}) {
    server_.answer("GET /v2 ", server);
    client_ = connect_http({"127.0.0.1", server_.port(), true});
    const auto items = static_cast<std::int64_t>(bytes.size() / engine::size_of(type));
    request_ = client_->prepare({"m", {{"x", type, {1, items}, bytes}}, slo_ms});
    EXPECT_EQ(answer_to_infer(reply(200, "{}")).code, Code::kOk);
    const std::string request = server_.last_request();
    const auto end = request.find("\r\n\r\n");
    return {request.substr(0, end + 2), nlohmann::json::parse(request.substr(end + 4))};
  }

  template <class Value>
  static std::string bytes_of(const std::vector<Value>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
  }
};

TEST_F(StrictServerTest, GetsWhatTheProtocolItselfHas) {
  for (const std::string& server :
       {reply(200, R"({"name": "mlserver", "version": "1.7", "extensions": []})"),
        reply(200, R"({"name": "x", "extensions": ["statistics"]})"),
        reply(200, R"({"name": "x"})"), reply(200, R"({"extensions": null})"),
        reply(200, R"({"extensions": "binary_tensor_data"})"), reply(200, "[]"),
        reply(200, "<html>"), reply(404, "")}) {
    const auto [head, body] =
        sent(server, engine::DataType::kFp32, bytes_of<float>({0.5, 0.25}), 30);
    EXPECT_THAT(head, HasSubstr("\r\nContent-Type: application/json\r\n")) << server;
    EXPECT_EQ(head.find("Inference-Header"), std::string::npos) << server;
    EXPECT_EQ(body, nlohmann::json::parse(R"({"inputs": [{"name": "x", "datatype": "FP32",
        "shape": [1, 2], "data": [0.5, 0.25]}], "parameters": {"slo_ms": 30.0}})"))
        << server;
  }
}

TEST_F(StrictServerTest, GetsTheValuesOfEachType) {
  using engine::DataType;
  const std::string plain = reply(200, R"({"extensions": []})");
  const auto data = [&](DataType type, const std::string& bytes) {
    return sent(plain, type, bytes).second["inputs"][0]["data"].dump();
  };
  EXPECT_EQ(data(DataType::kInt64, bytes_of<std::int64_t>({-1, 1LL << 60})),
            "[-1,1152921504606846976]");
  EXPECT_EQ(data(DataType::kInt32, bytes_of<std::int32_t>({-7, 7})), "[-7,7]");
  EXPECT_EQ(data(DataType::kUint8, bytes_of<std::uint8_t>({0, 255})), "[0,255]");
  EXPECT_EQ(data(DataType::kBool, bytes_of<std::uint8_t>({0, 1})), "[false,true]");
  EXPECT_EQ(data(DataType::kFp64, bytes_of<double>({0.125})), "[0.125]");
  EXPECT_FALSE(sent(plain, DataType::kInt8, "a").second.contains("parameters"));
}

TEST_F(StrictServerTest, IsToldInOneLineThatATypeHasNoValuesInJson) {
  server_.answer("GET /v2 ", reply(200, R"({"extensions": []})"));
  try {
    (void)client_->prepare({"m", {{"x", engine::DataType::kFp16, {1, 1}, "ab"}}, {}});
    FAIL() << "sent something";
  } catch (const base::RunError& error) {
    EXPECT_THAT(error.what(), HasSubstr("model 'm': "));
    EXPECT_THAT(error.what(), HasSubstr("does not take binary data"));
  }
}

TEST_F(StrictServerTest, AServerWithTheExtensionGetsBytes) {
  const std::string bytes = bytes_of<float>({0.5});
  server_.answer("GET /v2 ", reply(200, R"({"extensions": ["statistics", "binary_tensor_data"]})"));
  client_ = connect_http({"127.0.0.1", server_.port(), true});
  request_ = client_->prepare({"m", {{"x", engine::DataType::kFp32, {1, 1}, bytes}}, {}});
  EXPECT_EQ(answer_to_infer(reply(200, "{}")).code, Code::kOk);
  const std::string request = server_.last_request();
  EXPECT_THAT(request, HasSubstr("\r\nContent-Type: application/octet-stream\r\n"));
  EXPECT_THAT(request, HasSubstr("\r\nInference-Header-Content-Length: "));
  EXPECT_THAT(request, HasSubstr(R"("parameters":{"binary_data_size":4})"));
  EXPECT_THAT(request, HasSubstr(R"("binary_data_output":true)"));
  EXPECT_THAT(request, testing::EndsWith(bytes));
}

TEST_F(StrictServerTest, ItsAnswersAreRead) {
  const auto first = [&](const std::string& output) {
    return answer_to_infer(reply(200, R"({"model_name": "m", "outputs": [)" + output + "]}")).first;
  };
  EXPECT_EQ(first(R"({"name": "y", "datatype": "INT32", "shape": [1, 2], "data": [[3, 4]]})")->data,
            bytes_of<std::int32_t>({3, 4}));
  EXPECT_FALSE(first(""));
  const Answer wrong = answer_to_infer(
      reply(200, R"({"outputs": [{"datatype": "INT32", "shape": [2], "data": ["a", 1]}]})"));
  EXPECT_EQ(wrong.code, Code::kInternal);
  EXPECT_THAT(wrong.message, HasSubstr("the answer cannot be read: "));
}

// Prevents: "HTTP 422" for all that a server of FastAPI has to say.
TEST_F(StrictServerTest, ItsRefusalsSayWhy) {
  const Answer answer = answer_to_infer(reply(
      422, R"({"detail": [{"loc": ["body", "inputs", 0, "data"], "msg": "field required"}]})"));
  EXPECT_EQ(answer.code, Code::kInvalidArgument);
  EXPECT_THAT(answer.message, HasSubstr("HTTP 422: "));
  EXPECT_THAT(answer.message, HasSubstr("field required"));
}

TEST_F(StrictServerTest, AModelWithoutInputsIsOneLine) {
  server_.answer("GET /v2/models/m ", reply(200, R"({"name": "m", "inputs": []})"));
  EXPECT_EQ(inputs_fault(), "model 'm': the server does not say what it takes");
}

}  // namespace
}  // namespace sluice::server::workload
