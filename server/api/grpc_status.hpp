#pragma once
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include "server/api/access.hpp"
#include "server/service/service.hpp"

namespace sluice::server::api {

/// The status for the client. A time to retry goes into the trailing metadata of the call.
[[nodiscard]] grpc::Status to_grpc(const Status& status, grpc::ServerContextBase& context);

/// Whether a call with these headers may do what needs `right`.
[[nodiscard]] Status check_access(const Access& access, Right right,
                                  const grpc::ServerContextBase& context);

}  // namespace sluice::server::api
