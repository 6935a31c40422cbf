#pragma once
#include <boost/asio/ip/tcp.hpp>

#include "server/api/http_api.hpp"
#include "server/api/http_connections.hpp"

namespace sluice::server::api {

/// Serves a connection until it ends. It counts in `all`, and ends as `options` say. All but the
/// socket must live longer.
void serve_connection(boost::asio::ip::tcp::socket socket, HttpConnections& all,
                      const HttpOptions& options, HttpApi& api);

}  // namespace sluice::server::api
