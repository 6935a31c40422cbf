#pragma once
#include <grpcpp/generic/async_generic_service.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "server/api/access.hpp"
#include "server/service/service.hpp"

namespace sluice::server::api {

/// How long a call may take.
struct CallLimits {
  std::chrono::milliseconds read{60'000};   ///< For a whole message, from its headers on.
  std::chrono::milliseconds write{30'000};  ///< For a response, and a second for each 64 KiB of it.
};

/// Serves ModelInfer, and answers the calls that nobody serves. As a generic service it is entered
/// when the headers of a call arrive: a typed one is entered when its message is complete, which is
/// too late for an announcement.
class GenericCalls final : public grpc::CallbackGenericService {
 public:
  GenericCalls(Service& service, const CallLimits& limits, const Access& access)
      : service_(service), limits_(limits), access_(access) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

  /// How long ago the last call came.
  [[nodiscard]] std::chrono::nanoseconds since_last() const;

 private:
  Service& service_;
  CallLimits limits_;
  const Access& access_;
  std::atomic<std::uint64_t> last_ns_{0};  ///< CLOCK_MONOTONIC
};

}  // namespace sluice::server::api
