#include "server/api/grpc_tls.hpp"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>

namespace sluice::server::api {
namespace {

/// gRPC's C++ classes take a certificate once; its C functions ask for it at each handshake.
class ReloadedCredentials final : public grpc::ServerCredentials {
 public:
  explicit ReloadedCredentials(grpc_server_credentials* made) : made_(made) {}
  ReloadedCredentials(const ReloadedCredentials&) = delete;
  ReloadedCredentials& operator=(const ReloadedCredentials&) = delete;
  ~ReloadedCredentials() override { grpc_server_credentials_release(made_); }

  void SetAuthMetadataProcessor(
      const std::shared_ptr<grpc::AuthMetadataProcessor>& /*processor*/) override {}

 private:
  int AddPortToServer(const std::string& address, grpc_server* server) override {
    return grpc_server_add_http2_port(server, address.c_str(), made_);
  }

  grpc_server_credentials* made_;
};

}  // namespace

std::shared_ptr<grpc::ServerCredentials> GrpcTls::credentials() {
  if (!tls_.on()) return grpc::InsecureServerCredentials();
  return std::make_shared<ReloadedCredentials>(grpc_ssl_server_credentials_create_with_options(
      grpc_ssl_server_credentials_create_options_using_config_fetcher(
          tls_.client_ca.empty() ? GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE
                                 : GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY,
          &GrpcTls::fetch, this)));
}

void GrpcTls::set(Tls tls) {
  const std::lock_guard lock(mutex_);
  tls_ = std::move(tls);
  fetched_ = false;
}

grpc_ssl_certificate_config_reload_status GrpcTls::fetch(
    void* self, grpc_ssl_server_certificate_config** config) {
  auto& source = *static_cast<GrpcTls*>(self);
  const std::lock_guard lock(source.mutex_);
  if (source.fetched_) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
  const Tls& tls = source.tls_;
  const grpc_ssl_pem_key_cert_pair pair{tls.key.c_str(), tls.certificate.c_str()};
  // gRPC 1.51 aborts without root certificates, also where no client is asked for a certificate.
  const std::string& roots = tls.client_ca.empty() ? tls.certificate : tls.client_ca;
  *config = grpc_ssl_server_certificate_config_create(roots.c_str(), &pair, 1);
  source.fetched_ = true;
  return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
}

}  // namespace sluice::server::api
