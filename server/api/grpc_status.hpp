#pragma once
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <cstddef>

#include "server/api/access.hpp"
#include "server/service/service.hpp"

namespace sluice::server::api {

/// The status for the client. A time to retry goes into the trailing metadata of the call.
[[nodiscard]] grpc::Status to_grpc(const Status& status, grpc::ServerContextBase& context);

/// Of the headers of a call, as HTTP/2 counts them: the name, the value and 32 bytes for each. A
/// call with more is refused, and the other calls of its connection go on.
constexpr std::size_t kMaxMetadataBytes = std::size_t{64} << 10;

/// Whether a call with these headers may do what needs `right`.
[[nodiscard]] Status check_access(const Access& access, Right right,
                                  const grpc::ServerContextBase& context);

}  // namespace sluice::server::api
