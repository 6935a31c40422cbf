#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "controller/metrics_address.hpp"

namespace sluice::controller {

/// GET /metrics over HTTP, in a thread of its own, so that no peer of it can delay the heartbeat.
/// One request per connection, each within some seconds, a few connections at a time.
class HttpServer {
 public:
  /// Listens from here on. `metrics` makes the page; it is called in the server's thread.
  /// Throws std::runtime_error, one line, if the address cannot be had.
  HttpServer(const MetricsAddress& address, std::function<std::string()> metrics);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// Where the page is: "http://127.0.0.1:9464/metrics" with the port that port 0 led to, or
  /// "unix:/path".
  [[nodiscard]] std::string url() const;

 private:
  class Acceptor;
  MetricsAddress address_;
  std::unique_ptr<Acceptor> acceptor_;
};

}  // namespace sluice::controller
