#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "server/api/access.hpp"

namespace sluice::server::api {

/// What the path of a request names.
enum class Route {
  kNone,
  kServer,
  kLive,
  kReady,
  kModel,
  kModelReady,
  kModelConfig,
  kModelStatistics,
  kAllStatistics,
  kInfer,
  kIndex,
  kLoad,
  kUnload,
  kScheduler,
  kStatus,
  kMetrics,
  kNotServed,  ///< A part of the protocol's extensions that this server lacks.
};

struct HttpTarget {
  Route route = Route::kNone;
  std::string model;
  std::string version;
};

/// Of a request target, such as /v2/models/resnet50/versions/1/infer. Names may be percent-encoded.
[[nodiscard]] HttpTarget parse_target(std::string_view target);

/// The methods that a route takes, such as "POST" or "GET, HEAD". Load balancers probe with HEAD.
[[nodiscard]] std::string_view methods(Route route);
[[nodiscard]] bool takes(Route route, std::string_view method);
[[nodiscard]] Right right_of(Route route, std::string_view method);

}  // namespace sluice::server::api
