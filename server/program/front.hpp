#pragma once
#include <chrono>
#include <string>

#include "server/api/grpc_server.hpp"
#include "server/api/http_server.hpp"
#include "server/program/options.hpp"

namespace sluice::server {

[[nodiscard]] std::chrono::milliseconds to_ms(double seconds);

/// Both protocols at one address, with its rights and its certificate. `control`: the address takes
/// control calls. Throws base::UsageError for a file of tokens or of TLS that cannot be used.
struct Front {
  Front(Server& server, const ServeOptions& options, const AddressOptions& address, bool control);

  /// Reads the files of TLS again. Throws if they cannot be used; those of before then stay.
  void read_tls_again(const ServeOptions& options);

  [[nodiscard]] std::string grpc_text() const { return text(grpc.port(), "grpc"); }
  [[nodiscard]] std::string http_text() const { return text(http.port(), "http"); }

  const std::string listen;
  api::GrpcServer grpc;
  api::HttpServer http;

 private:
  struct Door;
  Front(Server& server, const ServeOptions& options, const AddressOptions& address,
        const Door& door);
  static api::Tls tls_of(const ServeOptions& options, const std::string& listen);
  static Door door_of(const ServeOptions& options, const AddressOptions& address, bool control);
  static api::GrpcServer::Options grpc_options(const ServeOptions& options,
                                               const AddressOptions& address, const Door& door);
  static api::HttpOptions http_options(const ServeOptions& options, const AddressOptions& address,
                                       const Door& door);
  [[nodiscard]] std::string text(int port, const char* name) const;
};

}  // namespace sluice::server
