#include "server/api/http_server.hpp"

// g++ 12 needs <utility> in front of asio's awaitable.
#include <utility>
// The connections are in http_connection.cpp.
#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <future>
#include <mutex>
#include <optional>
#include <thread>
#include <variant>

#include "base/error.hpp"
#include "server/api/address.hpp"
#include "server/api/codec_pool.hpp"
#include "server/api/http_connection.hpp"
#include "server/api/workers.hpp"

namespace sluice::server::api {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// Answers a connection over the limit without waiting for its request.
void turn_away(Stream::Socket& socket) {
  static constexpr std::string_view kFull =
      "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
  error_code ignored;
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(kFull.data(), kFull.size()), ignored);
}

[[noreturn]] void cannot_listen(const std::string& where, const std::string& why) {
  throw base::RunError("cannot listen on " + where + " for HTTP: " + why);
}

/// A thread and the connections that it serves. Threads that shared them would wake each other for
/// each request.
class Loop {
 public:
  Loop() = default;
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop() { work_.reset(); }

  [[nodiscard]] asio::io_context& io() { return io_; }
  [[nodiscard]] asio::io_context::executor_type executor() { return io_.get_executor(); }
  /// Returns when all of its connections have ended.
  void end() {
    work_.reset();
    thread_.join();
  }

 private:
  asio::io_context io_{1};  // One thread runs it.
  /// Takes the descriptors of the loop now: when a connection comes, there may be none.
  asio::steady_timer unused_{io_};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  std::jthread thread_{[this] { io_.run(); }};
};

/// Takes connections at one address, TCP or unix.
class Listener {
  using Tcp = tcp::acceptor;
  using Unix = asio::local::stream_protocol::acceptor;

  template <class Use>
  auto with(Use use) {
    auto* const tcp = std::get_if<Tcp>(&acceptor_);
    return tcp != nullptr ? use(*tcp) : use(std::get<Unix>(acceptor_));
  }

 public:
  using Taken = std::function<void(error_code, Stream::Socket)>;

  Listener(asio::io_context& io, const HttpServer::Options& options)
      : address_(resolve_address(options.address, "http")) {
    if (is_unix(address_)) {
      const auto path = address_.substr(std::string_view(kUnixPrefix).size());
      open(acceptor_.emplace<Unix>(io), path, options.port);
    } else {
      const tcp::endpoint endpoint(asio::ip::make_address(address_), options.port);
      open(acceptor_.emplace<Tcp>(io), endpoint, options.port);
    }
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  ~Listener() {
    if (is_unix(address_)) unlink(address_.substr(std::string_view(kUnixPrefix).size()).c_str());
  }

  [[nodiscard]] int port() const {
    const auto* const tcp = std::get_if<Tcp>(&acceptor_);
    return tcp == nullptr ? 0 : tcp->local_endpoint().port();
  }
  [[nodiscard]] Stream::executor_type executor() {
    return with([](auto& acceptor) -> Stream::executor_type { return acceptor.get_executor(); });
  }
  [[nodiscard]] bool is_open() {
    return with([](auto& acceptor) { return acceptor.is_open(); });
  }
  /// loop: serves the connection.
  void take(Loop& loop, Taken taken) {
    with([&](auto& acceptor) {
      acceptor.async_accept(loop.executor(),
                            [taken = std::move(taken)](error_code error, auto socket) {
                              taken(error, Stream::Socket(std::move(socket)));
                            });
    });
  }
  /// Takes the connections that wait, which the kernel would reset, and ends. On executor(). loop:
  /// serves them.
  void close(Loop& loop, const std::function<void(Stream::Socket)>& taken) {
    with([&](auto& acceptor) {
      error_code error;
      acceptor.non_blocking(true, error);
      while (!error) {
        auto socket = acceptor.accept(loop.executor(), error);
        if (!error) taken(Stream::Socket(std::move(socket)));
      }
      acceptor.close(error);
    });
  }

 private:
  template <class Acceptor, class Endpoint>
  void open(Acceptor& acceptor, const Endpoint& place, std::uint16_t port) {
    const typename Acceptor::endpoint_type endpoint(place);
    error_code error;
    const SocketMode mode(address_);
    acceptor.open(endpoint.protocol(), error);
    if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) acceptor.bind(endpoint, error);
    if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
    if (error) cannot_listen(endpoint_text(address_, port), error.message());
  }

  const std::string address_;
  std::variant<std::monostate, Tcp, Unix> acceptor_;
};

std::optional<asio::ssl::context> tls_context(const Tls& tls) {
  if (!tls.on()) return std::nullopt;
  using Context = asio::ssl::context;
  Context context(Context::tls_server);
  context.set_options(Context::default_workarounds | Context::no_tlsv1 | Context::no_tlsv1_1 |
                      Context::no_sslv2 | Context::no_sslv3);
  context.use_certificate_chain(asio::buffer(tls.certificate));
  context.use_private_key(asio::buffer(tls.key), Context::pem);
  if (!tls.client_ca.empty()) {
    context.add_certificate_authority(asio::buffer(tls.client_ca));
    context.set_verify_mode(asio::ssl::verify_peer | asio::ssl::verify_fail_if_no_peer_cert);
    // Without it, OpenSSL ends each connection that resumes the session of an earlier one. Tickets
    // are only good for this context, so the name need not say which address they are for.
    static constexpr std::string_view kSession = "sluice serve";
    SSL_CTX_set_session_id_context(context.native_handle(),
                                   reinterpret_cast<const unsigned char*>(kSession.data()),
                                   kSession.size());
  }
  return context;
}

}  // namespace

class HttpServer::Parts {
 public:
  Parts(Service& service, const Options& options)
      : loops_(std::max<std::size_t>(options.threads, 1)),
        options_(options),
        tls_(tls_context(options.tls)),
        connections_(options),
        api_(service, workers_, pool_, options.max_request_bytes, options.access),
        listener_(loops_.front().io(), options),
        retry_(listener_.executor()) {
    asio::post(listener_.executor(), [this] { accept(); });
  }

  [[nodiscard]] int port() const { return port_; }

  void set_tls(const Tls& tls) {
    // Connections that are open keep OpenSSL's part of the old context.
    auto made = std::make_shared<std::optional<asio::ssl::context>>(tls_context(tls));
    asio::post(listener_.executor(), [this, made] { tls_ = std::move(*made); });
  }

  void leave() { connections_.leave(); }

  bool finish(steady_clock::time_point until) {
    leave();
    stop_accepting();
    const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now());
    const auto cut = until - std::min(kQuiet, left / 2);
    while (!connections_.quiet(kQuiet) && steady_clock::now() < cut) {
      std::this_thread::sleep_for(milliseconds(10));
    }
    end_all(false);
    return connections_.wait_for_none(
        std::max(std::chrono::ceil<milliseconds>(until - steady_clock::now()), milliseconds(0)));
  }

  void stop(milliseconds grace) {
    std::call_once(stopped_, [&] {
      stop_accepting();
      end_all(false);
      if (!connections_.wait_for_none(grace)) end_all(true);
      connections_.wait_for_none(std::nullopt);
      pool_.end();  // A job may hold its call, and so an announcement, longer than the connection.
      for (Loop& loop : loops_) loop.end();
    });
  }

 private:
  /// How long clients that have an open connection send nothing before the server ends.
  static constexpr milliseconds kQuiet{1000};

  /// Returns when no connection can be opened any more.
  void stop_accepting() {
    std::promise<void> closed;
    asio::post(listener_.executor(), [&] {
      if (listener_.is_open())
        listener_.close(loops_.front(),
                        [this](Stream::Socket socket) { serve(std::move(socket)); });
      retry_.cancel();
      closed.set_value();
    });
    closed.get_future().wait();
  }

  void end_all(bool now) {
    for (const auto& connection : connections_.all()) connection->end(now);
  }

  void serve(Stream::Socket socket) {
    if (connections_.make_place()) {
      serve_connection(std::move(socket), tls_ ? &*tls_ : nullptr, connections_, options_, api_);
    } else if (!tls_) {
      turn_away(socket);
    }
  }

  void accept() {
    Loop& loop = loops_[next_++ % loops_.size()];
    listener_.take(loop, [this](error_code error, Stream::Socket socket) {
      if (!listener_.is_open()) {
        if (!error) serve(std::move(socket));
        return;
      }
      // Until one descriptor is free: the next accept() needs it.
      if (error == asio::error::no_descriptors) connections_.end_longest_waiting();
      if (error) return accept_later();
      serve(std::move(socket));
      accept();
    });
  }

  /// Without a free descriptor, accept() would fail again at once.
  void accept_later() {
    retry_.expires_after(milliseconds(100));
    retry_.async_wait([this](error_code) {
      if (listener_.is_open()) accept();
    });
  }

  std::deque<Loop> loops_;  ///< The first one also takes the connections.
  std::size_t next_ = 0;    ///< The loop of the next connection.
  const Options options_;
  std::optional<asio::ssl::context> tls_;
  HttpConnections connections_;
  Workers workers_;
  CodecPool pool_;
  HttpApi api_;
  Listener listener_;
  const int port_ = listener_.port();
  asio::steady_timer retry_;
  std::once_flag stopped_;
};

HttpServer::HttpServer(Service& service, const Options& options)
    : parts_(std::make_unique<Parts>(service, options)) {}

HttpServer::~HttpServer() { stop(milliseconds(0)); }

int HttpServer::port() const { return parts_->port(); }

void HttpServer::set_tls(const Tls& tls) { parts_->set_tls(tls); }

void HttpServer::leave() { parts_->leave(); }

bool HttpServer::finish(std::chrono::steady_clock::time_point until) {
  return parts_->finish(until);
}

void HttpServer::stop(milliseconds grace) { parts_->stop(grace); }

}  // namespace sluice::server::api
