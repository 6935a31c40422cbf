#pragma once
#include <chrono>
#include <memory>

#include "server/api/http_connections.hpp"
#include "server/service/service.hpp"

namespace sluice::server::api {

/// The KServe v2 protocol over HTTP/1.1 and 1.0, /metrics, and the paths of this server's own.
/// Thread-safe.
class HttpServer {
 public:
  using Options = HttpOptions;

  /// Serves from now on. Throws base::RunError if it cannot listen. The service must live longer.
  HttpServer(Service& service, const Options& options);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  /// stop() without a grace period.
  ~HttpServer();

  /// 0: a unix socket.
  [[nodiscard]] int port() const;
  /// For connections from now on, of a server that has TLS. Throws std::exception if OpenSSL takes
  /// no such certificate; the one of before then stays.
  void set_tls(const Tls& tls);
  /// From now on each response ends its connection. New connections are still served.
  void leave();
  /// As leave(), without new connections. When no open connection has had a request for a second,
  /// or shortly before `until`, connections end, each after its response. Returns false if some
  /// are open at `until`.
  bool finish(std::chrono::steady_clock::time_point until);
  /// Accepts no request from now on, and cancels those that have not ended after the grace period.
  /// Returns when the service has answered all. Calls after the first do nothing.
  void stop(std::chrono::milliseconds grace);

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace sluice::server::api
