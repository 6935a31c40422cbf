#pragma once
#include <string>
#include <utility>

#include "server/service/service.hpp"

namespace sluice::server::api {

/// What a codec or a check throws for a request that it refuses. Caught where the call is answered.
struct Refusal {
  Status status;
};

/// A message as it leaves the server. It may repeat a name, which a client can make as long as its
/// request; a gRPC client refuses headers of more than 8 KiB, and then the code is lost too.
[[nodiscard]] inline std::string shortened(const std::string& message) {
  constexpr std::size_t kMost = 1024;
  return message.size() <= kMost ? message : message.substr(0, kMost) + "...";
}

/// The status, with this reason if it has none.
[[nodiscard]] inline Status with_reason(Status status, std::string_view reason) {
  if (status.reason.empty()) status.reason = reason;
  return status;
}

[[noreturn]] inline void refuse(std::string message, Code code = Code::kInvalidArgument) {
  throw Refusal{Status{code, std::move(message), 0}};
}

}  // namespace sluice::server::api
