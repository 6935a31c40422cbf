#pragma once
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <mutex>

#include "server/api/access.hpp"

namespace sluice::server::api {

/// The certificate of a gRPC server, which may change while it serves. Thread-safe. It must live
/// longer than the server.
class GrpcTls {
 public:
  explicit GrpcTls(Tls tls) : tls_(std::move(tls)) {}

  /// Of a server: insecure if there is no certificate.
  [[nodiscard]] std::shared_ptr<grpc::ServerCredentials> credentials();
  /// For connections from now on. Whether clients need a certificate does not change.
  void set(Tls tls);

 private:
  static grpc_ssl_certificate_config_reload_status fetch(
      void* self, grpc_ssl_server_certificate_config** config);

  std::mutex mutex_;
  Tls tls_;
  bool fetched_ = false;
};

}  // namespace sluice::server::api
