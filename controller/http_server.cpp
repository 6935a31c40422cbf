#include "controller/http_server.hpp"

#include <fcntl.h>

#include <algorithm>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "controller/socket_file.hpp"

namespace sluice::controller {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;
using boost::system::error_code;
using Tcp = asio::ip::tcp;
using Unix = asio::local::stream_protocol;
using Stream = asio::generic::stream_protocol;  // of both kinds
using Metrics = std::function<std::string()>;

constexpr std::chrono::seconds kRequestTime{5};
constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::size_t kMaxRequestBytes = 16 * 1024;
constexpr int kMaxConnections = 16;

http::response<http::string_body> answer(const http::request<http::string_body>& request,
                                         const Metrics& metrics) {
  http::response<http::string_body> response;
  response.version(request.version());
  response.keep_alive(false);
  response.set(http::field::content_type, "text/plain; charset=utf-8");
  const auto path = request.target().substr(0, request.target().find('?'));
  const bool head = request.method() == http::verb::head;
  if (path != "/metrics") {
    response.result(http::status::not_found);
    response.body() = "not here; see /metrics\n";
  } else if (!head && request.method() != http::verb::get) {
    response.result(http::status::method_not_allowed);
    response.set(http::field::allow, "GET, HEAD");
  } else {
    response.set(http::field::content_type, "text/plain; version=0.0.4; charset=utf-8");
    response.body() = metrics();
  }
  response.prepare_payload();
  if (head) response.body().clear();
  return response;
}

/// One connection: a request, its response, the end. Keeps itself alive until then.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  Exchange(Stream::socket socket, const Metrics& metrics, int& open)
      : stream_(std::move(socket)), buffer_(kMaxRequestBytes), metrics_(metrics), open_(open) {
    ++open_;
  }
  ~Exchange() { --open_; }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void start() {
    stream_.expires_after(kRequestTime);
    http::async_read(stream_, buffer_, request_,
                     [self = shared_from_this()](error_code error, std::size_t) {
                       if (!error) self->respond();
                     });
  }

  /// Ends a connection that has not sent its request. False: it has, or has been ended.
  bool end_if_idle() {
    if (!std::exchange(idle_, false)) return false;
    stream_.close();
    return true;
  }

 private:
  void respond() {
    idle_ = false;
    response_ = answer(request_, metrics_);
    stream_.expires_after(kRequestTime);
    http::async_write(stream_, response_,
                      [self = shared_from_this()](error_code error, std::size_t) {
                        if (!error)
                          self->stream_.socket().shutdown(Stream::socket::shutdown_send, error);
                      });
  }

  beast::basic_stream<Stream> stream_;
  beast::flat_buffer buffer_;
  http::request<http::string_body> request_;
  http::response<http::string_body> response_;
  const Metrics& metrics_;
  int& open_;
  bool idle_ = true;
};

}  // namespace

class HttpServer::Acceptor {
 public:
  Acceptor(const MetricsAddress& address, Metrics metrics)
      : metrics_(std::move(metrics)), acceptor_(context_), pause_(context_) {
    if (address.is_unix()) {
      listen_on(address.path);
    } else {
      listen_on(Tcp::endpoint(asio::ip::make_address(address.host), address.port));
    }
    accept();
    thread_ = std::thread([this] { context_.run(); });
  }

  ~Acceptor() {
    context_.stop();
    thread_.join();
  }
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  [[nodiscard]] std::uint16_t port() const { return port_; }

 private:
  void listen_on(const std::string& path) {
    file_.emplace(path);
    const int copy = fcntl(file_->fd(), F_DUPFD_CLOEXEC, 0);
    if (copy < 0) throw boost::system::system_error(errno, boost::system::system_category());
    acceptor_.assign(Stream(Unix()), copy);
  }

  void listen_on(const Tcp::endpoint& endpoint) {
    acceptor_.open(Stream(endpoint.protocol()));
    acceptor_.set_option(Tcp::acceptor::reuse_address(true));
    acceptor_.bind(Stream::endpoint(endpoint));
    acceptor_.listen();
    Tcp::endpoint bound;
    std::memcpy(bound.data(), acceptor_.local_endpoint().data(), bound.capacity());
    port_ = bound.port();
  }

  void accept() {
    acceptor_.async_accept([this](error_code error, Stream::socket socket) {
      if (!error) {
        const auto exchange = std::make_shared<Exchange>(std::move(socket), metrics_, open_);
        exchange->start();
        exchanges_.push_back(exchange);
      }
      if (!error && make_room()) {
        accept();
      } else {
        accept_later();
      }
    });
  }

  /// Whether one more connection may be open. Peers that send no request keep nobody out: the
  /// oldest of them has to leave.
  bool make_room() {
    std::erase_if(exchanges_, [](const auto& each) { return each.expired(); });
    if (open_ < kMaxConnections) return true;
    return std::ranges::any_of(exchanges_, [](const auto& each) {
      const auto exchange = each.lock();
      return exchange && exchange->end_if_idle();
    });
  }

  void accept_later() {
    pause_.expires_after(kAcceptPause);
    pause_.async_wait([this](error_code error) {
      if (error) return;
      if (make_room()) {
        accept();
      } else {
        accept_later();
      }
    });
  }

  Metrics metrics_;
  int open_ = 0;  // outlives the exchanges, which the context keeps
  std::vector<std::weak_ptr<Exchange>> exchanges_;  // the oldest first
  asio::io_context context_{1};
  std::optional<SocketFile> file_;
  asio::basic_socket_acceptor<Stream> acceptor_;
  std::uint16_t port_ = 0;
  asio::steady_timer pause_;
  std::thread thread_;
};

HttpServer::HttpServer(const MetricsAddress& address, std::function<std::string()> metrics) try
    : address_(address), acceptor_(std::make_unique<Acceptor>(address, std::move(metrics))) {
} catch (const boost::system::system_error& error) {
  throw std::runtime_error("cannot serve metrics on " + address.host + " port " +
                           std::to_string(address.port) + ": " + error.code().message() +
                           "; choose another --metrics");
}

HttpServer::~HttpServer() = default;

std::string HttpServer::url() const {
  if (address_.is_unix()) return "unix:" + address_.path;
  const bool v6 = address_.host.find(':') != std::string::npos;
  return "http://" + (v6 ? "[" + address_.host + "]" : address_.host) + ":" +
         std::to_string(acceptor_->port()) + "/metrics";
}

}  // namespace sluice::controller
