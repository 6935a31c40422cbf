// The paths of HTTP. Prevents: a call that reaches another model or action than its path names, and
// a call that changes the server under the right of one that only reads.
#include "server/api/http_target.hpp"

#include <gtest/gtest.h>

#include <map>

namespace sluice::server::api {
namespace {

void expect(const std::string& target, Route route, const std::string& model = "",
            const std::string& version = "") {
  const HttpTarget parsed = parse_target(target);
  EXPECT_EQ(parsed.route, route) << target;
  EXPECT_EQ(parsed.model, model) << target;
  EXPECT_EQ(parsed.version, version) << target;
}

TEST(HttpTarget, EachPathHasItsRoute) {
  expect("/v2", Route::kServer);
  expect("/v2/", Route::kServer);
  expect("/v2/health/live", Route::kLive);
  expect("/v2/health/ready?x=/y", Route::kReady);
  expect("/v2/models/m", Route::kModel, "m");
  expect("/v2/models/m/versions/3", Route::kModel, "m", "3");
  expect("/v2/models/m/ready", Route::kModelReady, "m");
  expect("/v2/models/m/config", Route::kModelConfig, "m");
  expect("/v2/models/m/stats", Route::kModelStatistics, "m");
  expect("/v2/models/m/infer", Route::kInfer, "m");
  expect("/v2/models/m/versions/3/infer", Route::kInfer, "m", "3");
  expect("/v2/models/stats", Route::kAllStatistics);
  expect("/v2/repository/index", Route::kIndex);
  expect("/v2/repository/models/m/load", Route::kLoad, "m");
  expect("/v2/repository/models/m/unload", Route::kUnload, "m");
  expect("/v2/scheduler", Route::kScheduler);
  expect("/v2/sluice/status", Route::kStatus);
  expect("/metrics", Route::kMetrics);
  for (const char* lacking : {"systemsharedmemory", "cudasharedmemory", "trace", "logging"}) {
    expect("/v2/" + std::string(lacking) + "/x", Route::kNotServed);
  }
  for (const char* lacking : {"generate", "generate_stream", "trace"}) {
    expect("/v2/models/m/" + std::string(lacking), Route::kNotServed, "m");
  }
}

TEST(HttpTarget, OtherPathsHaveNone) {
  for (const char* target :
       {"", "/", "/v1", "/v2/none", "/v2/health", "/v2/models", "/v2/repository", "/metrics/x",
        "/v2/repository/indices", "/v2/repository/index/x", "/v2/repository/models/m",
        "/v2/repository/models/m/load/x", "/v2/repository/others/m/load",
        "/v2/repository/models/m/reload", "/v2/scheduler/x"}) {
    expect(target, Route::kNone);
  }
  expect("/v2/models/m/other", Route::kNone, "m");
  expect("/v2/models/m/infer/x", Route::kNone, "m");
  expect("/v2/models/m/versions/3/infer/x", Route::kNone, "m", "3");
  expect("/v2/models/m/versions", Route::kNone, "m");
}

TEST(HttpTarget, NamesAreDecodedAfterThePathIsSplit) {
  expect("/v2/models/a%20b%2Fc/infer", Route::kInfer, "a b/c");
  expect("/v2/models/%6d/infer", Route::kInfer, "m");
  expect("/v2/models/m%", Route::kModel, "m%");
  expect("/v2/models/m%2", Route::kModel, "m%2");
  expect("/v2/models/m%41", Route::kModel, "mA");
  expect("/v2/models/m%4g%", Route::kModel, "m%4g%");
  expect("/v2//models///m//infer/", Route::kInfer, "m");
}

// Clients that take the server for a proxy, and some proxies, name the host in the target.
TEST(HttpTarget, TheHostMayBeNamed) {
  expect("http://h/v2/models/m/infer", Route::kInfer, "m");
  expect("HTTPS://user@h:1/v2/health/live?x=http://", Route::kLive);
  expect("http://[::1]:80/v2", Route::kServer);
  for (const char* target : {"http://h", "http:///", "http://h?/v2", "ftp://h/v2", "://h/v2", "v2",
                             "*", "h/v2", "http:/v2", "/http://h/v2"}) {
    expect(target, Route::kNone);
  }
}

TEST(HttpTarget, EachRouteHasItsMethods) {
  for (const Route route : {Route::kInfer, Route::kIndex, Route::kLoad, Route::kUnload}) {
    EXPECT_EQ(methods(route), "POST");
    EXPECT_TRUE(takes(route, "POST"));
    EXPECT_FALSE(takes(route, "GET"));
    EXPECT_FALSE(takes(route, "HEAD"));
  }
  EXPECT_EQ(methods(Route::kScheduler), "GET, HEAD, POST");
  EXPECT_TRUE(takes(Route::kScheduler, "GET"));
  EXPECT_TRUE(takes(Route::kScheduler, "POST"));
  EXPECT_EQ(methods(Route::kLive), "GET, HEAD");
  EXPECT_TRUE(takes(Route::kLive, "GET"));
  EXPECT_TRUE(takes(Route::kLive, "HEAD"));
  EXPECT_FALSE(takes(Route::kLive, "POST"));
  for (const char* other : {"PUT", "DELETE", "OPTIONS", ", ", ""}) {
    EXPECT_FALSE(takes(Route::kScheduler, other)) << other;
  }
}

TEST(HttpTarget, EachRouteNeedsItsRight) {
  EXPECT_EQ(right_of(Route::kLive, "GET"), Right::kProbe);
  EXPECT_EQ(right_of(Route::kReady, "HEAD"), Right::kProbe);
  EXPECT_EQ(right_of(Route::kLoad, "POST"), Right::kControl);
  EXPECT_EQ(right_of(Route::kUnload, "POST"), Right::kControl);
  EXPECT_EQ(right_of(Route::kScheduler, "POST"), Right::kControl);
  EXPECT_EQ(right_of(Route::kScheduler, "GET"), Right::kUse);
  for (const Route route : {Route::kInfer, Route::kIndex, Route::kModel, Route::kNone}) {
    EXPECT_EQ(right_of(route, "POST"), Right::kUse);
  }
}

}  // namespace
}  // namespace sluice::server::api
