#include "server/program/front.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "server/api/address.hpp"

namespace sluice::server {
namespace {

/// Clients that send slowly must leave memory to others.
std::size_t max_arriving_bytes(const ServeOptions& options) {
  return options.server.max_queued_bytes / 2;
}

std::size_t max_request_bytes(const ServeOptions& options) {
  return std::min(options.max_request_mb << 20, max_arriving_bytes(options));
}

}  // namespace

std::chrono::milliseconds to_ms(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

/// The rights and the certificate at one address.
struct Front::Door {
  api::Access access;
  api::Tls tls;
};

Front::Door Front::door_of(const ServeOptions& options, const AddressOptions& address,
                           bool control) {
  Door door;
  door.access.control = control;
  if (!address.token_file.empty()) door.access.tokens = api::read_tokens(address.token_file);
  door.tls = tls_of(options, address.listen);
  return door;
}

api::Tls Front::tls_of(const ServeOptions& options, const std::string& listen) {
  // The kernel knows who is at the other end of a unix socket.
  if (options.tls.certificate.empty() || api::is_unix(listen)) return {};
  return api::read_tls(options.tls.certificate, options.tls.key, options.tls.client_ca);
}

void Front::read_tls_again(const ServeOptions& options) {
  const api::Tls tls = tls_of(options, listen);
  if (!tls.on()) return;
  http.set_tls(tls);
  grpc.set_tls(tls);
}

Front::Front(Server& server, const ServeOptions& options, const AddressOptions& address,
             bool control)
    : Front(server, options, address, door_of(options, address, control)) {}

Front::Front(Server& server, const ServeOptions& options, const AddressOptions& address,
             const Door& door)
    : listen(address.listen),
      grpc(server, grpc_options(options, address, door)),
      http(server, http_options(options, address, door)) {}

api::GrpcServer::Options Front::grpc_options(const ServeOptions& options,
                                             const AddressOptions& address, const Door& door) {
  api::GrpcServer::Options grpc{address.listen, address.grpc_port, max_request_bytes(options),
                                max_arriving_bytes(options)};
  grpc.max_connection_age = to_ms(options.max_connection_age_s);
  grpc.access = door.access;
  grpc.tls = door.tls;
  return grpc;
}

api::HttpOptions Front::http_options(const ServeOptions& options, const AddressOptions& address,
                                     const Door& door) {
  api::HttpOptions http{address.listen, address.http_port, max_request_bytes(options),
                        max_arriving_bytes(options)};
  http.body_timeout = to_ms(options.body_s);
  http.max_connections = options.max_connections;
  http.access = door.access;
  http.tls = door.tls;
  return http;
}

std::string Front::text(int port, const char* name) const {
  return api::is_unix(listen) ? listen + "/" + name : fmt::format("{}:{}", listen, port);
}

}  // namespace sluice::server
