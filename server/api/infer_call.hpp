#pragma once
#include <grpcpp/generic/async_generic_service.h>

#include <chrono>

#include "server/api/access.hpp"
#include "server/api/activity.hpp"
#include "server/api/time_limits.hpp"
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
  /// All but `limits` must live longer.
  GenericCalls(Service& service, const CallLimits& limits, const Access& access, Activity& activity)
      : service_(service), limits_(limits), access_(access), activity_(activity) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  Service& service_;
  CallLimits limits_;
  TimeLimits time_limits_;
  const Access& access_;
  Activity& activity_;
};

}  // namespace sluice::server::api
