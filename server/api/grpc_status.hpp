#pragma once
#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include "server/service/service.hpp"

namespace sluice::server::api {

/// The status for the client. A time to retry goes into the trailing metadata of the call.
[[nodiscard]] grpc::Status to_grpc(const Status& status, grpc::ServerContextBase& context);

}  // namespace sluice::server::api
