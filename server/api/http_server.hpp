#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "server/service.hpp"

namespace sluice::server::api {

/// The KServe v2 protocol over HTTP/1.1, /metrics, and the paths of this server's own. Thread-safe.
class HttpServer {
 public:
  struct Options {
    std::string address = "127.0.0.1";  ///< An IPv4 or IPv6 address.
    std::uint16_t port = 0;             ///< 0: any free one.
    /// Of a body, also when inflated. A larger one is refused with 413.
    std::size_t max_request_bytes = std::size_t{64} << 20;
    /// Of all bodies that have not arrived completely. A request beyond that is refused with 429,
    /// like one beyond Service::memory().
    std::size_t max_arriving_bytes = std::size_t{512} << 20;
    std::size_t max_connections = 1024;
    std::size_t threads = 2;
    /// For the headers of a request, and for a body or a response that makes no progress.
    std::chrono::milliseconds progress_timeout{30'000};
    /// For a whole body.
    std::chrono::milliseconds body_timeout{300'000};
    /// For a connection between two requests.
    std::chrono::milliseconds idle_timeout{600'000};
  };

  /// Serves from now on. Throws base::RunError if it cannot listen. The service must live longer.
  HttpServer(Service& service, const Options& options);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  /// stop() without a grace period.
  ~HttpServer();

  [[nodiscard]] int port() const;
  /// Accepts no request from now on, and cancels those that have not ended after the grace period.
  /// Returns when the service has answered all. Calls after the first do nothing.
  void stop(std::chrono::milliseconds grace);

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace sluice::server::api
