#pragma once
#include "server/api/http_api.hpp"
#include "server/api/http_connections.hpp"
#include "server/api/stream.hpp"

namespace sluice::server::api {

/// Serves a connection until it ends. It counts in `all`, and ends as `options` say. tls: null for
/// none. All but the socket must live longer.
void serve_connection(Stream::Socket socket, boost::asio::ssl::context* tls, HttpConnections& all,
                      const HttpOptions& options, HttpApi& api);

}  // namespace sluice::server::api
