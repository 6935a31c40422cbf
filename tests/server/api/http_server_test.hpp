#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "fake_service.hpp"
#include "raw_http.hpp"
#include "server/api/http_server.hpp"

namespace sluice::server::api {

inline const std::string kEcho = "/v2/models/echo/infer";

/// An input of INT32 values in JSON.
inline std::string echo_body(const std::string& more = "") {
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

  test::RawHttp connect() { return test::RawHttp(server_->port()); }

  test::RawHttp::Reply ask(const std::string& request) {
    auto connection = connect();
    connection.send(request);
    const auto reply = connection.reply();
    EXPECT_TRUE(reply) << request.substr(0, 200);
    return reply.value_or(test::RawHttp::Reply{});
  }

  test::RawHttp::Reply infer(const std::string& model, const std::string& body) {
    return ask(test::http_request("POST", "/v2/models/" + model + "/infer", body));
  }

  static constexpr std::uint64_t kMemory = 100'000'000;
  test::FakeService service_{kMemory};
  std::unique_ptr<HttpServer> server_;
};

inline std::string error_of(const test::RawHttp::Reply& reply) {
  return nlohmann::json::parse(reply.body).value("error", "");
}

}  // namespace sluice::server::api
