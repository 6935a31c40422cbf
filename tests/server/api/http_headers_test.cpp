// Prevents: a request that a proxy in front and the server take for different ones, and encodings
// that a client has ruled out.
#include "server/api/http_headers.hpp"

#include <gtest/gtest.h>

#include "http_server_test.hpp"
#include "server/api/compression.hpp"
#include "server/api/http_call.hpp"

namespace sluice::server::api {
namespace {

using test::http_request;

unsigned status_of(const std::function<void()>& check) {
  try {
    check();
  } catch (const HttpReply& reply) {
    return reply.status;
  }
  return 200;
}

TEST(HttpHeaders, ListsHaveItems) {
  using Items = std::vector<std::string_view>;
  EXPECT_EQ(list_items(" a ,, b;q=1 ,", ','), (Items{"a", "b;q=1"}));
  EXPECT_EQ(list_items("", ','), Items{});
  EXPECT_TRUE(is_word("GzIp", "gzip"));
  EXPECT_FALSE(is_word("gzip2", "gzip"));
  EXPECT_FALSE(is_word("gzi", "gzip"));
}

TEST(HttpHeaders, ARequestHasOneHost) {
  const auto status = [](unsigned version, const std::vector<std::string>& hosts) {
    return status_of([&] { check_host(version, hosts); });
  };
  EXPECT_EQ(status(11, {"x"}), 200U);
  EXPECT_EQ(status(11, {"[::1]:8081"}), 200U);
  EXPECT_EQ(status(11, {""}), 200U) << "a client without a host says so";
  EXPECT_EQ(status(10, {}), 200U) << "HTTP/1.0 does not know it";
  EXPECT_EQ(status(11, {}), 400U);
  EXPECT_EQ(status(11, {"x", "x"}), 400U);
  EXPECT_EQ(status(10, {"x", "y"}), 400U);
  for (const char* bad : {"x/y", "x, y", "a b", "user@x", "x?y", "x#y"}) {
    EXPECT_EQ(status(11, {bad}), 400U) << bad;
  }
}

TEST(HttpHeaders, OnlyChunksAreUnderstood) {
  const auto status = [](const std::string& encoding, unsigned version = 11) {
    return status_of([&] { check_transfer_encoding(version, encoding); });
  };
  EXPECT_EQ(status(""), 200U);
  EXPECT_EQ(status("Chunked"), 200U);
  EXPECT_EQ(status("gzip"), 501U);
  EXPECT_EQ(status("gzip, chunked"), 501U);
  EXPECT_EQ(status("identity, chunked"), 501U);
  EXPECT_EQ(status("chunked, gzip"), 400U) << "its end cannot be found";
  EXPECT_EQ(status("chunked, chunked"), 400U);
  EXPECT_EQ(status("chunked", 10), 400U);
}

// RFC 9110, 12.5.3.
TEST(HttpHeaders, AClientChoosesTheEncoding) {
  const std::vector<std::pair<std::string, Encoding>> cases = {
      {"", Encoding::kIdentity},
      {"gzip", Encoding::kGzip},
      {"GZIP", Encoding::kGzip},
      {"x-gzip", Encoding::kGzip},
      {"deflate", Encoding::kDeflate},
      {"deflate, gzip", Encoding::kGzip},
      {"br;q=1.0, gzip;q=0.8, *;q=0.1", Encoding::kGzip},
      {"gzip;q=0", Encoding::kIdentity},
      {"gzip;q=0.000", Encoding::kIdentity},
      {"gzip ; Q=0, deflate", Encoding::kDeflate},
      {"gzip;q=0.5, deflate;q=0.9", Encoding::kDeflate},
      {"gzip;q=0.001", Encoding::kGzip},
      {"*", Encoding::kGzip},
      {"*;q=0", Encoding::kIdentity},
      {"gzip;q=0, *", Encoding::kDeflate},
      {"identity", Encoding::kIdentity},
      {"br, gzippy, notgzip", Encoding::kIdentity},
      {"gzip;q=2", Encoding::kIdentity},
      {"gzip;q=nan", Encoding::kIdentity},
      {"gzip;q=", Encoding::kIdentity},
      {",;, ;q=1,", Encoding::kIdentity},
  };
  for (const auto& [header, expected] : cases) {
    EXPECT_EQ(accepted_encoding(header), expected) << header;
  }
  EXPECT_EQ(content_encoding("GZIP"), Encoding::kGzip);
  EXPECT_EQ(content_encoding("Identity"), Encoding::kIdentity);
}

const std::string kStart = "POST " + kEcho + " HTTP/1.1\r\n";

std::string with_body(const std::string& headers) {
  const std::string body = echo_body();
  return kStart + headers + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

TEST_F(HttpServerTest, HeadersThatAreNotUnderstoodAreRefused) {
  EXPECT_EQ(ask(with_body("Host: x\r\n")).status, 200);
  const auto none = ask(with_body(""));
  EXPECT_EQ(none.status, 400);
  EXPECT_EQ(error_of(none), "the request has no Host");
  EXPECT_EQ(none.headers.at("connection"), "close");
  EXPECT_EQ(ask(with_body("Host: x\r\nhost: x\r\n")).status, 400);
  EXPECT_EQ(ask("GET /v2/health/live HTTP/1.0\r\n\r\n").status, 200);
  const std::string host = kStart + "Host: x\r\n";
  const std::string chunk = "5\r\nhello\r\n0\r\n\r\n";
  EXPECT_EQ(ask(host + "Transfer-Encoding: gzip, chunked\r\n\r\n" + chunk).status, 501);
  EXPECT_EQ(
      ask(host + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk).status,
      501);
  for (const char* bad :
       {"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n", "Content-Length: +5\r\n",
        "Content-Length: -5\r\n", "Content-Length: 0x5\r\n", "Content-Length: 5 5\r\n",
        "Content-Length: 99999999999999999999\r\n", "Transfer-Encoding: chunked, chunked\r\n",
        "Host : x\r\n", " folded: x\r\n"}) {
    EXPECT_EQ(ask(host + bad + "\r\nhello").status, 400) << bad;
  }
  // A list where one value is meant.
  EXPECT_EQ(
      ask(with_body("Host: x\r\nContent-Encoding: gzip\r\nContent-Encoding: gzip\r\n")).status,
      415);
  EXPECT_EQ(ask(with_body("Host: x\r\nInference-Header-Content-Length: 5\r\n"
                          "Inference-Header-Content-Length: 6\r\n"))
                .status,
            400);
  EXPECT_EQ(
      ask(with_body("Host: x\r\nInference-Header-Content-Length: 99999999999999999999\r\n")).status,
      400);
}

TEST_F(HttpServerTest, TakesTheAbsoluteFormOfATarget) {
  EXPECT_EQ(ask(http_request("GET", "http://host:8081/v2/health/live")).status, 200);
  EXPECT_EQ(ask(http_request("POST", "HTTP://host/v2/models/echo/infer?x=y", echo_body())).status,
            200);
  EXPECT_EQ(ask(http_request("GET", "http://host")).status, 404);
  EXPECT_EQ(ask(http_request("GET", "v2/health/live")).status, 404);
}

// Prevents: a client of HTTP/1.0 that takes a 100 for its answer.
TEST_F(HttpServerTest, AClientOfHttp10GetsNoContinue) {
  const std::string body = echo_body();
  EXPECT_EQ(ask("POST " + kEcho + " HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body)
                .status,
            200);
}

TEST_F(HttpServerTest, EncodingsAreTakenAsTheClientNamesThem) {
  const std::string packed = deflate(echo_body(), Encoding::kGzip);
  for (const char* name : {"gzip", "GZIP", "X-GZip"}) {
    const std::string header = std::string("Content-Encoding: ") + name + "\r\n";
    EXPECT_EQ(ask(http_request("POST", kEcho, packed, header)).status, 200) << name;
  }
  const auto refused = ask(http_request("POST", kEcho, packed, "Content-Encoding: br\r\n"));
  EXPECT_EQ(refused.status, 415);
  EXPECT_EQ(refused.headers.at("accept-encoding"), "gzip, deflate");
  const auto plain =
      ask(http_request("GET", "/v2/models/stats", "", "Accept-Encoding: gzip;q=0, identity\r\n"));
  EXPECT_EQ(plain.headers.count("content-encoding"), 0U);
}

// Prevents: a load whose body is compressed is refused, or one without a body is.
TEST_F(HttpServerTest, LoadsTakeEncodedBodies) {
  const std::string path = "/v2/repository/models/echo/load";
  const std::string gzip = "Content-Encoding: gzip\r\n";
  const auto load = [&](const std::string& body) {
    return ask(http_request("POST", path, deflate(body, Encoding::kGzip), gzip)).status;
  };
  EXPECT_EQ(load("{}"), 200);
  EXPECT_EQ(load(R"({"parameters":null})"), 200);
  EXPECT_EQ(load("null"), 200);
  EXPECT_EQ(load(R"({"parameters":{"config":"{}"}})"), 501);
  EXPECT_EQ(load(R"({"parameters":[1]})"), 400);
  EXPECT_EQ(load("[]"), 400);
  EXPECT_EQ(ask(http_request("POST", path, "", gzip)).status, 200);
  EXPECT_EQ(ask(http_request("POST", path, "nonsense", gzip)).status, 400);
}

}  // namespace
}  // namespace sluice::server::api
