#include "server/api/http_call.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_text.hpp"
#include "server/api/refusal.hpp"

namespace sluice::server::api {
namespace {

unsigned http_status(Code code) {
  switch (code) {
    case Code::kOk:
      return 200;
    case Code::kInvalidArgument:
      return 400;
    case Code::kNotFound:
      return 404;
    case Code::kUnavailable:
      return 503;
    case Code::kResourceExhausted:
      return 429;
    case Code::kDeadlineExceeded:
      return 504;
    case Code::kCancelled:
      return 499;
    case Code::kUnimplemented:
      return 501;
    case Code::kUnauthenticated:
      return 401;
    case Code::kPermissionDenied:
      return 403;
    case Code::kInternal:
      break;
  }
  return 500;
}

}  // namespace

HttpReply error_reply(unsigned status, const std::string& message) {
  HttpReply reply;
  reply.status = status;
  const nlohmann::json body = {{"error", message}};
  reply.body = base::json_text(body);
  return reply;
}

HttpReply error_reply(const Status& status) {
  HttpReply reply = error_reply(http_status(status.code), shortened(status.message));
  if (status.code == Code::kResourceExhausted && status.retry_after_ms > 0) {
    const auto ms = std::ceil(status.retry_after_ms);
    reply.headers.emplace_back("Retry-After",
                               std::to_string(static_cast<std::int64_t>(std::ceil(ms / 1000))));
    reply.headers.emplace_back("retry-after-ms", std::to_string(static_cast<std::int64_t>(ms)));
  }
  return reply;
}

}  // namespace sluice::server::api
