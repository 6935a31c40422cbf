#include "server/api/http_target.hpp"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <utility>

#include "server/api/http_headers.hpp"

namespace sluice::server::api {
namespace {

using Parts = std::vector<std::string>;

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    if (text[i] == '%' && i + 2 < text.size()) {
      const char* end = text.data() + i + 3;
      if (std::from_chars(text.data() + i + 1, end, value, 16).ptr == end) {
        out.push_back(static_cast<char>(value));
        i += 2;
        continue;
      }
    }
    out.push_back(text[i]);
  }
  return out;
}

/// Without scheme and host: a client may name them as it does to a proxy (RFC 9112, 3.2.2).
std::string_view path_of(std::string_view target) {
  constexpr std::string_view kHost = "://";
  const auto host = target.find(kHost);
  if (host == std::string_view::npos) return target;
  const auto scheme = target.substr(0, host);
  if (!is_word(scheme, "http") && !is_word(scheme, "https")) return target;
  const auto rest = target.substr(host + kHost.size());
  const auto path = rest.find('/');
  return path == std::string_view::npos ? "/" : rest.substr(path);
}

/// Splits before it decodes: an encoded slash belongs to a name.
Parts split(std::string_view path) {
  Parts parts;
  while (!path.empty()) {
    const auto slash = path.find('/');
    const auto part = path.substr(0, slash);
    if (!part.empty()) parts.push_back(percent_decoded(part));
    path = slash == std::string_view::npos ? "" : path.substr(slash + 1);
  }
  return parts;
}

/// Of what follows /v2/models/MODEL[/versions/VERSION].
Route model_route(const std::string& action) {
  if (action.empty()) return Route::kModel;
  if (action == "ready") return Route::kModelReady;
  if (action == "config") return Route::kModelConfig;
  if (action == "stats") return Route::kModelStatistics;
  if (action == "infer") return Route::kInfer;
  if (action == "generate" || action == "generate_stream" || action == "trace") {
    return Route::kNotServed;
  }
  return Route::kNone;
}

HttpTarget models(const Parts& parts) {
  if (parts.size() == 3 && parts[2] == "stats") return {Route::kAllStatistics, "", ""};
  HttpTarget target{Route::kNone, parts[2], ""};
  std::size_t at = 3;
  if (parts.size() >= 5 && parts[3] == "versions") {
    target.version = parts[4];
    at = 5;
  }
  if (parts.size() <= at + 1) target.route = model_route(parts.size() > at ? parts[at] : "");
  return target;
}

HttpTarget repository(const Parts& parts) {
  if (parts.size() == 3 && parts[2] == "index") return {Route::kIndex, "", ""};
  if (parts.size() == 5 && parts[2] == "models") {
    if (parts[4] == "load") return {Route::kLoad, parts[3], ""};
    if (parts[4] == "unload") return {Route::kUnload, parts[3], ""};
  }
  return {};
}

Route fixed_route(const Parts& parts) {
  if (parts == Parts{"metrics"}) return Route::kMetrics;
  if (parts.empty() || parts[0] != "v2") return Route::kNone;
  if (parts.size() == 1) return Route::kServer;
  if (parts == Parts{"v2", "health", "live"}) return Route::kLive;
  if (parts == Parts{"v2", "health", "ready"}) return Route::kReady;
  if (parts == Parts{"v2", "scheduler"}) return Route::kScheduler;
  if (parts == Parts{"v2", "sluice", "status"}) return Route::kStatus;
  const std::string& area = parts[1];
  const bool lacking = area == "systemsharedmemory" || area == "cudasharedmemory" ||
                       area == "trace" || area == "logging";
  return lacking ? Route::kNotServed : Route::kNone;
}

}  // namespace

HttpTarget parse_target(std::string_view target) {
  const std::string_view path = path_of(target.substr(0, target.find('?')));
  if (!path.starts_with('/')) return {};
  const Parts parts = split(path);
  if (parts.size() >= 3 && parts[0] == "v2" && parts[1] == "models") return models(parts);
  if (parts.size() >= 3 && parts[0] == "v2" && parts[1] == "repository") return repository(parts);
  return {fixed_route(parts), "", ""};
}

std::string_view methods(Route route) {
  switch (route) {
    case Route::kInfer:
    case Route::kIndex:
    case Route::kLoad:
    case Route::kUnload:
      return "POST";
    case Route::kScheduler:
      return "GET, HEAD, POST";
    default:
      return "GET, HEAD";
  }
}

bool takes(Route route, std::string_view method) {
  const auto all = list_items(methods(route), ',');
  return std::ranges::find(all, method) != all.end();
}

Right right_of(Route route, std::string_view method) {
  switch (route) {
    case Route::kLive:
    case Route::kReady:
      return Right::kProbe;
    case Route::kLoad:
    case Route::kUnload:
      return Right::kControl;
    case Route::kScheduler:
      return method == "POST" ? Right::kControl : Right::kUse;
    default:
      return Right::kUse;
  }
}

}  // namespace sluice::server::api
