#include "server/api/http_server.hpp"

// g++ 12 needs <utility> in front of asio's awaitable.
#include <utility>
// The connections are in http_connection.cpp.
#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/error.hpp"
#include "server/api/http_connection.hpp"
#include "server/api/workers.hpp"

namespace sluice::server::api {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;

/// Answers a connection over the limit without waiting for its request.
void turn_away(tcp::socket& socket) {
  static constexpr std::string_view kFull =
      "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(kFull.data(), kFull.size()), ignored);
}

tcp::acceptor listen(asio::io_context& io, const HttpServer::Options& options) {
  const std::string where = options.address + " port " + std::to_string(options.port);
  error_code error;
  const auto address = asio::ip::make_address(options.address, error);
  if (error) throw base::RunError("cannot listen on " + where + " for HTTP: not an IP address");
  const tcp::endpoint endpoint(address, options.port);
  tcp::acceptor acceptor(asio::make_strand(io));
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) throw base::RunError("cannot listen on " + where + " for HTTP: " + error.message());
  return acceptor;
}

}  // namespace

class HttpServer::Parts {
 public:
  Parts(Service& service, const Options& options)
      : options_(options),
        connections_(options.max_connections, options.max_arriving_bytes),
        api_(service, workers_, options.max_request_bytes),
        acceptor_(listen(io_, options)),
        retry_(acceptor_.get_executor()) {
    accept();
    for (std::size_t i = 0; i < std::max<std::size_t>(options.threads, 1); ++i) {
      threads_.emplace_back([this] { io_.run(); });
    }
  }

  [[nodiscard]] int port() const { return acceptor_.local_endpoint().port(); }

  void stop(milliseconds grace) {
    std::call_once(stopped_, [&] {
      stop_accepting();
      end_all(false);
      if (!connections_.wait_for_none(grace)) end_all(true);
      connections_.wait_for_none(std::nullopt);
      work_.reset();
      threads_.clear();
    });
  }

 private:
  /// Returns when no connection can be opened any more.
  void stop_accepting() {
    std::promise<void> closed;
    asio::post(acceptor_.get_executor(), [&] {
      error_code ignored;
      acceptor_.close(ignored);
      retry_.cancel();
      closed.set_value();
    });
    closed.get_future().wait();
  }

  void end_all(bool now) {
    for (const auto& connection : connections_.all()) connection->end(now);
  }

  void accept() {
    acceptor_.async_accept(asio::make_strand(io_), [this](error_code error, tcp::socket socket) {
      if (!acceptor_.is_open()) return;
      // Until one descriptor is free: the next accept() needs it.
      if (error == asio::error::no_descriptors) connections_.end_longest_waiting();
      if (error) return accept_later();
      if (connections_.make_place()) {
        serve_connection(std::move(socket), connections_, options_, api_);
      } else {
        turn_away(socket);
      }
      accept();
    });
  }

  /// Without a free descriptor, accept() would fail again at once.
  void accept_later() {
    retry_.expires_after(milliseconds(100));
    retry_.async_wait([this](error_code) {
      if (acceptor_.is_open()) accept();
    });
  }

  asio::io_context io_;
  const Options options_;
  HttpConnections connections_;
  Workers workers_;
  HttpApi api_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  std::once_flag stopped_;
  std::vector<std::jthread> threads_;
};

HttpServer::HttpServer(Service& service, const Options& options)
    : parts_(std::make_unique<Parts>(service, options)) {}

HttpServer::~HttpServer() { stop(milliseconds(0)); }

int HttpServer::port() const { return parts_->port(); }

void HttpServer::stop(milliseconds grace) { parts_->stop(grace); }

}  // namespace sluice::server::api
