#pragma once
#include <grpcpp/generic/async_generic_service.h>

#include <chrono>

#include "server/service.hpp"

namespace sluice::server::api {

/// Serves ModelInfer, and answers the calls that nobody serves. As a generic service it is entered
/// when the headers of a call arrive: a typed one is entered when its message is complete, which is
/// too late for an announcement.
class GenericCalls final : public grpc::CallbackGenericService {
 public:
  /// read_timeout: for a whole message.
  GenericCalls(Service& service, std::chrono::milliseconds read_timeout)
      : service_(service), read_timeout_(read_timeout) {}

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override;

 private:
  Service& service_;
  std::chrono::milliseconds read_timeout_;
};

}  // namespace sluice::server::api
