#include "server/api/grpc_status.hpp"

#include <cmath>
#include <map>
#include <string>

#include "server/api/refusal.hpp"

namespace sluice::server::api {
namespace {

grpc::StatusCode to_grpc(Code code) {
  switch (code) {
    case Code::kOk:
      return grpc::StatusCode::OK;
    case Code::kInvalidArgument:
      return grpc::StatusCode::INVALID_ARGUMENT;
    case Code::kNotFound:
      return grpc::StatusCode::NOT_FOUND;
    case Code::kUnavailable:
      return grpc::StatusCode::UNAVAILABLE;
    case Code::kResourceExhausted:
      return grpc::StatusCode::RESOURCE_EXHAUSTED;
    case Code::kDeadlineExceeded:
      return grpc::StatusCode::DEADLINE_EXCEEDED;
    case Code::kCancelled:
      return grpc::StatusCode::CANCELLED;
    case Code::kUnimplemented:
      return grpc::StatusCode::UNIMPLEMENTED;
    case Code::kUnauthenticated:
      return grpc::StatusCode::UNAUTHENTICATED;
    case Code::kPermissionDenied:
      return grpc::StatusCode::PERMISSION_DENIED;
    case Code::kInternal:
      break;
  }
  return grpc::StatusCode::INTERNAL;
}

/// As HTTP/2 counts it (RFC 9113, 10.5.1).
std::size_t size_of(const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) {
  constexpr std::size_t kOverhead = 32;
  std::size_t bytes = 0;
  for (const auto& [name, value] : metadata) bytes += name.size() + value.size() + kOverhead;
  return bytes;
}

}  // namespace

Status check_access(const Access& access, Right right, const grpc::ServerContextBase& context) {
  const auto& headers = context.client_metadata();
  if (const std::size_t bytes = size_of(headers); bytes > kMaxMetadataBytes) {
    return {Code::kResourceExhausted,
            "the metadata has " + std::to_string(bytes) + " bytes; the limit is " +
                std::to_string(kMaxMetadataBytes),
            0, "too_large"};
  }
  const auto at = headers.find("authorization");
  const bool found = at != headers.end();
  return check_access(access, right,
                      found ? std::string_view(at->second.data(), at->second.size()) : "");
}

grpc::Status to_grpc(const Status& status, grpc::ServerContextBase& context) {
  if (status.ok()) return grpc::Status::OK;
  if (status.code == Code::kResourceExhausted && status.retry_after_ms > 0) {
    const auto ms = std::to_string(static_cast<std::int64_t>(std::ceil(status.retry_after_ms)));
    context.AddTrailingMetadata("retry-after-ms", ms);
    // The name that gRPC clients with a retry policy obey.
    context.AddTrailingMetadata("grpc-retry-pushback-ms", ms);
  }
  return {to_grpc(status.code), shortened(status.message)};
}

}  // namespace sluice::server::api
