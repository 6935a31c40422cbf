#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "server/api/access.hpp"
#include "server/service/service.hpp"

namespace sluice::server::api {

/// The KServe v2 protocol, the colserve calls, gRPC's health protocol and reflection over gRPC.
/// Thread-safe.
class GrpcServer {
 public:
  struct Options {
    std::string address = "127.0.0.1";  ///< See resolve_address().
    std::uint16_t port = 0;             ///< 0: any free one.
    /// Of a message, also when inflated. A larger one is refused with RESOURCE_EXHAUSTED.
    std::size_t max_request_bytes = std::size_t{64} << 20;
    /// Of the messages that have not arrived completely. Beyond that, gRPC cancels calls.
    std::size_t max_arriving_bytes = std::size_t{512} << 20;
    /// For a whole inference message, from its headers on.
    std::chrono::milliseconds read_timeout{60'000};
    /// For the response to an inference, and a second for each 64 KiB of it.
    std::chrono::milliseconds write_timeout{30'000};
    /// For a connection without a call.
    std::chrono::milliseconds idle_timeout{600'000};
    /// A connection of this age is told to end; its calls go on. 0: never. Clients that connect
    /// again so spread over servers.
    std::chrono::milliseconds max_connection_age{0};
    Access access = {};
    Tls tls = {};
  };

  /// Serves from now on. Throws base::RunError if it cannot listen. The service must live longer.
  GrpcServer(Service& service, const Options& options);
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;
  /// stop() without a grace period.
  ~GrpcServer();

  /// 0: a unix socket.
  [[nodiscard]] int port() const;
  /// For connections from now on, of a server that has TLS.
  void set_tls(const Tls& tls);
  /// Ends the server: when all inferences are answered and none has come for a second, or shortly
  /// before `until`. Other calls have a second or two to end. gRPC cuts those that come in the
  /// moment of stop(), so clients should have gone elsewhere.
  void finish(std::chrono::steady_clock::time_point until);
  /// Tells the clients (GOAWAY), accepts no connection and no call from now on, and cancels those
  /// that have not ended after the grace period. Returns when all have ended. Calls after the first
  /// do nothing.
  void stop(std::chrono::milliseconds grace);

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace sluice::server::api
