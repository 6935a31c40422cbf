#include "server/api/http_connection.hpp"

// Boost.Beast takes most of a minute to compile, so no other file of the server has it.
#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/http/write.hpp>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "server/api/http_headers.hpp"

namespace sluice::server::api {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::uint32_t kMaxHeaderBytes = 16 << 10;
/// Read ahead of a request that is being answered, for the next requests of its connection.
constexpr std::size_t kReadAhead = 16 << 10;
constexpr std::size_t kReadBytes = 4 << 10;
/// Of what has arrived and is not parsed. Beast bounds headers, but not the extensions of a chunk.
constexpr std::size_t kMostUnparsed = 128 << 10;
/// After the last response, the rest of what the client sends is read and dropped for at least that
/// long. If the socket were closed at once, the client would be reset and could lose the response.
constexpr milliseconds kLinger{1000};
constexpr milliseconds kMostLinger{300'000};
constexpr auto kNever = steady_clock::time_point::max();

/// What a slow client gets for so many bytes, to send or to read them: a second for each 64 KiB.
milliseconds time_for(std::size_t bytes) { return milliseconds(bytes * 1000 / (64 << 10)); }

std::vector<std::string> headers(const http::fields& fields, std::string_view name) {
  std::vector<std::string> values;
  const auto [first, last] = fields.equal_range(beast::string_view(name.data(), name.size()));
  for (auto at = first; at != last; ++at) values.emplace_back(at->value());
  return values;
}

/// A header that comes several times is one list (RFC 9110, 5.3). One that is no list is then none.
std::string header(const http::fields& fields, std::string_view name) {
  std::string all;
  for (const std::string& value : headers(fields, name)) all += (all.empty() ? "" : ", ") + value;
  return all;
}

/// Of a refusal by the headers, as Status::reason.
std::string_view reason_of(unsigned status) {
  switch (status) {
    case 401:
      return "token";
    case 413:
      return "too_large";
    case 429:
      return "memory";
    default:
      return "malformed";
  }
}

/// One connection. Everything but done callbacks runs in the thread of its socket.
class Connection final : public OpenConnection, public std::enable_shared_from_this<Connection> {
 public:
  Connection(Stream::Socket socket, asio::ssl::context* tls, HttpConnections& all,
             const HttpOptions& options, HttpApi& api)
      : place_(all),
        all_(all),
        options_(options),
        api_(api),
        stream_(std::move(socket), tls),
        timer_(stream_.get_executor()) {}

  void start() {
    place_.take(shared_from_this());
    error_code ignored;  // A unix socket has no such option.
    stream_.socket().set_option(tcp::no_delay(true), ignored);
    asio::post(stream_.get_executor(), [self = shared_from_this()] { self->shake_hands(); });
  }

  /// Ends the connection: after its response, or at once if `now`. Thread-safe.
  void end(bool now) override {
    asio::post(stream_.get_executor(), [self = shared_from_this(), now] {
      self->last_ = true;
      if (now && self->state_ == State::kRunning) self->call_->cancel();
      if (now || self->state_ == State::kIdle) self->close();
    });
  }

 private:
  enum class State {
    kIdle,       ///< Between two requests.
    kReading,    ///< The headers or the body arrive.
    kRunning,    ///< The service has the request.
    kWriting,    ///< The response leaves.
    kLingering,  ///< The response has left, and nothing more is answered.
    kClosed,
  };

  // -- waiting for a request

  void shake_hands() {
    state_ = State::kReading;
    place_.wait();
    set_timer(options_.progress_timeout);
    stream_.async_handshake([self = shared_from_this()](error_code error) {
      if (self->state_ == State::kClosed) return;
      if (error) return self->close();
      self->wait_for_request();
    });
  }

  void wait_for_request() {
    state_ = State::kIdle;
    if (last_) return close();
    place_.wait();
    set_timer(options_.idle_timeout);
    if (!ahead_ && buffer_.size() > 0) return read_headers();
    if (!ahead_) return read_ahead();
    // on_ahead() goes on: now, if the next request is already there.
    error_code ignored;
    if (buffer_.size() > 0) stream_.socket().cancel(ignored);
  }

  /// Reads what comes next on the connection. Notices while a request runs that the client is gone.
  void read_ahead() {
    ahead_ = true;
    stream_.async_read_some(buffer_.prepare(kReadBytes),
                            [self = shared_from_this()](error_code error, std::size_t bytes) {
                              self->on_ahead(error, bytes);
                            });
  }

  void on_ahead(error_code error, std::size_t bytes) {
    ahead_ = false;
    buffer_.commit(bytes);
    if (state_ == State::kClosed) return;
    const bool idle = state_ == State::kIdle;
    if (idle && (!error || error == asio::error::operation_aborted)) return read_headers();
    if (error) return on_client_gone();
    if (state_ == State::kLingering) buffer_.consume(buffer_.size());
    if (buffer_.size() < kReadAhead) read_ahead();
  }

  /// The client has closed the connection, or its side of it. A client that only closed its side
  /// still gets an answer.
  void on_client_gone() {
    last_ = true;
    if (state_ == State::kRunning) return call_->cancel();
    if (state_ != State::kWriting) close();
  }

  // -- reading

  void read_headers() {
    state_ = State::kReading;
    set_timer(options_.progress_timeout);
    version_ = kHttp11;
    bodyless_ = false;
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    // The limit of bodies is checked in on_headers(). Beast 1.74 takes no boost::none here.
    parser_->body_limit(std::numeric_limits<std::uint64_t>::max());
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code error, std::size_t) { self->on_headers(error); });
  }

  void on_headers(error_code error) {
    if (state_ == State::kClosed) return;
    if (!place_.go_on()) return close();
    if (timed_out_) return refuse(error_reply(408, "the headers took too long"));
    if (error == http::error::header_limit)
      return refuse(error_reply(431, "the headers are too large"));
    const bool gone = error && error.category() == asio::error::get_system_category();
    if (gone || error == http::error::end_of_stream) return close();
    if (error) return refuse(error_reply(400, "not an HTTP request: " + error.message()));
    const auto& request = parser_->get();
    last_ = last_ || !request.keep_alive();
    version_ = request.version();
    bodyless_ = request.method() == http::verb::head;
    const bool has_body = request.count(http::field::transfer_encoding) > 0 ||
                          parser_->content_length().value_or(0) > 0;
    try {
      begin(request);
    } catch (HttpReply& reply) {
      const std::string_view reason = reason_of(reply.status);
      last_ = last_ || reply.status == 400;
      if (has_body) return refuse(std::move(reply), reason);
      stop_timer();
      api_.refused(std::string(request.target()), reply.status, reason);
      write(std::move(reply));
    }
  }

  /// Throws HttpReply.
  void begin(const http::request<http::empty_body>& request) {
    HttpHead head;
    head.method = std::string(request.method_string());
    head.target = target_ = std::string(request.target());
    head.content_length = parser_->content_length().value_or(0);
    most_bytes_ = api_.max_body_bytes(target_);
    unread_ = parser_->chunked() ? options_.max_request_bytes : head.content_length;
    check_host(version_, headers(request, "Host"));
    check_transfer_encoding(version_, header(request, "Transfer-Encoding"));
    head.content_encoding = header(request, "Content-Encoding");
    head.accept_encoding = header(request, "Accept-Encoding");
    head.inference_header_length = header(request, "Inference-Header-Content-Length");
    head.authorization = header(request, "Authorization");
    head.origin = header(request, "Origin");
    head.traceparent = header(request, "traceparent");
    if (head.content_length > most_bytes_) {
      throw error_reply(413, "the body has " + std::to_string(head.content_length) +
                                 " bytes; the limit is " + std::to_string(most_bytes_));
    }
    // A client of HTTP/1.0 does not know a 100 Continue.
    const std::string expect = version_ < kHttp11 ? "" : header(request, "Expect");
    const bool waits = is_word(expect, "100-continue");
    if (!expect.empty() && !waits) {
      throw error_reply(417, "Expect: only 100-continue is understood");
    }
    memory_ = ByteBudget::Share(api_.memory());
    take_memory(head.content_length);
    call_ = api_.begin(head);
    body_got_ = 0;
    body_limit_ = steady_clock::now() + options_.body_timeout;
    if (!parser_->chunked()) return read_body(head.content_length, waits);
    chunks_.emplace(std::move(*parser_));
    chunks_->body_limit(most_bytes_);
    waits ? write_continue() : read_more_body();
  }

  /// More of the body: `bytes` in all. Throws HttpReply.
  void take_memory(std::size_t bytes) {
    if (!memory_.resize(bytes) || !all_.reserve(bytes - reserved_)) {
      throw error_reply(memory_full());
    }
    reserved_ = bytes;
  }

  void read_body(std::size_t bytes, bool client_waits) {
    body_bytes_ = bytes;
    // Beast would copy the body once more, through its buffer.
    body_ = std::make_unique_for_overwrite<char[]>(bytes);
    body_got_ = std::min(bytes, buffer_.size());
    std::copy_n(static_cast<const char*>(buffer_.data().data()), body_got_, body_.get());
    buffer_.consume(body_got_);
    if (client_waits && bytes > 0 && body_got_ == 0) return write_continue();
    read_more_body();
  }

  void write_continue() {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(stream_, asio::buffer(kContinue.data(), kContinue.size()),
                      [self = shared_from_this()](error_code, std::size_t) {
                        if (self->state_ != State::kClosed) self->read_more_body();
                      });
  }

  void read_more_body() {
    if (!chunks_ && body_got_ == body_bytes_) return run();
    const auto left = std::chrono::duration_cast<milliseconds>(body_limit_ + time_for(body_got_) -
                                                               steady_clock::now());
    set_timer(std::min(options_.progress_timeout, std::max(left, milliseconds(0))));
    if (chunks_) return read_chunks();
    stream_.async_read_some(asio::buffer(body_.get() + body_got_, body_bytes_ - body_got_),
                            [self = shared_from_this()](error_code error, std::size_t bytes) {
                              self->on_body(error, bytes);
                            });
  }

  void read_chunks() {
    http::async_read_some(
        stream_, buffer_, *chunks_,
        [self = shared_from_this()](error_code error, std::size_t) { self->on_chunks(error); });
  }

  void on_chunks(error_code error) {
    if (state_ == State::kClosed) return;
    if (timed_out_) return refuse(error_reply(408, "the body took too long"), "too_slow");
    if (error == http::error::body_limit) {
      return refuse(error_reply(413, "the body has more bytes than the limit, " +
                                         std::to_string(most_bytes_)),
                    "too_large");
    }
    if (error)
      return refuse(error_reply(400, "the chunks of the body: " + error.message()), "malformed");
    std::string& body = chunks_->get().body();
    body_got_ = body.size();
    try {
      take_memory(std::max(body.capacity(), reserved_));
    } catch (HttpReply& reply) {
      return refuse(std::move(reply), "memory");
    }
    if (!chunks_->is_done()) return read_more_body();
    auto whole = std::make_shared<const std::string>(std::move(body));
    chunks_.reset();
    run(*whole, whole);
  }

  void on_body(error_code error, std::size_t bytes) {
    if (state_ == State::kClosed) return;
    body_got_ += bytes;
    if (timed_out_) return refuse(error_reply(408, "the body took too long"), "too_slow");
    if (error) {
      return refuse(error_reply(400, "the body ends after " + std::to_string(body_got_) + " of " +
                                         std::to_string(body_bytes_) + " bytes"),
                    "cut_off");
    }
    read_more_body();
  }

  // -- answering

  void run() {
    std::shared_ptr<const char[]> kept = std::move(body_);
    run({kept.get(), body_bytes_}, kept);
  }

  void run(std::string_view bytes, std::shared_ptr<const void> kept) {
    state_ = State::kRunning;
    unread_ = 0;
    stop_timer();
    release_reserved();
    if (!ahead_ && buffer_.size() < kReadAhead) read_ahead();
    Body body{bytes, counted(std::move(kept), std::move(memory_))};
    call_->run(std::move(body), [self = shared_from_this()](MakeReply make) {
      asio::post(self->stream_.get_executor(), [self, make = std::move(make)] {
        if (self->state_ != State::kClosed) self->write(make());
        self->call_.reset();
      });
    });
  }

  /// Answers a request whose body was not read: the rest of the connection cannot be understood.
  void refuse(HttpReply reply, std::string_view reason = {}) {
    // Without a reason, not even the headers are known.
    if (!reason.empty()) api_.refused(target_, reply.status, reason);
    release_reserved();
    body_.reset();
    chunks_.reset();
    memory_ = {};
    call_.reset();
    timed_out_ = false;
    last_ = true;
    write(std::move(reply));
  }

  void write(HttpReply reply) {
    state_ = State::kWriting;
    last_ = last_ || all_.leaving();
    response_ = {};
    response_.version(version_);
    response_.result(reply.status);
    response_.set(http::field::content_type, reply.content_type);
    for (const auto& [name, value] : reply.headers) response_.set(name, value);
    response_.body() = std::move(reply.body);
    response_memory_ = std::move(reply.memory);
    response_.keep_alive(!last_);
    response_.prepare_payload();  // The length also if the body itself is not wanted.
    if (bodyless_) response_.body().clear();
    set_timer(options_.progress_timeout + time_for(response_.body().size()));
    http::async_write(
        stream_, response_,
        [self = shared_from_this()](error_code error, std::size_t) { self->on_written(error); });
  }

  void on_written(error_code error) {
    if (state_ == State::kClosed) return;
    response_.body() = {};
    response_memory_.reset();
    if (error) return close();
    if (last_) return linger();
    wait_for_request();
  }

  void linger() {
    error_code ignored;
    stream_.socket().shutdown(Stream::Socket::shutdown_send, ignored);
    state_ = State::kLingering;
    place_.wait();
    // A client that still sends gets a second for each MiB to read its refusal.
    const milliseconds needed(unread_ * 1000 / (1 << 20));
    set_timer(kLinger + std::min(needed, kMostLinger));
    if (ahead_) return;
    buffer_.consume(buffer_.size());
    read_ahead();
  }

  void close() {
    state_ = State::kClosed;
    end_timer();
    release_reserved();
    error_code ignored;
    stream_.socket().close(ignored);
  }

  void release_reserved() { all_.release(std::exchange(reserved_, 0)); }

  // -- the one deadline of the connection

  void set_timer(milliseconds limit) {
    timed_out_ = false;
    due_ = steady_clock::now() + limit;
    // Most limits are never reached. A timer that fires too early costs less than one for each.
    if (due_ < fires_) arm_timer();
  }

  void stop_timer() { due_ = kNever; }

  void arm_timer() {
    fires_ = due_;
    timer_.expires_at(fires_);
    timer_.async_wait([self = shared_from_this(), round = ++timer_round_](error_code error) {
      if (!error && round == self->timer_round_) self->on_fired();
    });
  }

  void on_fired() {
    fires_ = kNever;
    if (due_ == kNever) return;
    if (steady_clock::now() < due_) return arm_timer();
    due_ = kNever;
    on_timer();
  }

  /// Nothing keeps the connection then.
  void end_timer() {
    due_ = kNever;
    ++timer_round_;
    timer_.cancel();
  }

  void on_timer() {
    if (state_ != State::kReading) return close();
    // The handler of the read answers the client.
    timed_out_ = true;
    error_code ignored;
    stream_.socket().cancel(ignored);
  }

  HttpConnections::Place place_;  // First, so that it is destroyed last.
  HttpConnections& all_;
  const HttpOptions& options_;
  HttpApi& api_;
  Stream stream_;
  asio::steady_timer timer_;
  std::uint64_t timer_round_ = 0;
  steady_clock::time_point due_ = kNever;    ///< The deadline.
  steady_clock::time_point fires_ = kNever;  ///< timer_: not later than due_.
  State state_ = State::kIdle;
  bool timed_out_ = false;
  bool last_ = false;   ///< No request follows the current one.
  bool ahead_ = false;  ///< read_ahead() is pending: nothing else may touch buffer_.
  beast::flat_buffer buffer_{kMostUnparsed};
  std::optional<http::request_parser<http::empty_body>> parser_;
  std::optional<http::request_parser<http::string_body>> chunks_;  ///< Of a chunked body.
  std::string target_;                                             ///< Of the request.
  unsigned version_ = kHttp11;                                     ///< Of the request.
  std::size_t most_bytes_ = 0;                                     ///< Of the body.
  bool bodyless_ = false;  ///< The request was HEAD: the response has no body.
  std::shared_ptr<HttpCall> call_;
  std::unique_ptr<char[]> body_;
  std::size_t body_bytes_ = 0;
  std::size_t body_got_ = 0;
  std::uint64_t unread_ = 0;  ///< Of the body, if it is refused.
  std::size_t reserved_ = 0;  ///< Of the arriving bytes.
  ByteBudget::Share memory_;  ///< Of the body.
  /// Without the time for what has arrived.
  steady_clock::time_point body_limit_;
  http::response<http::string_body> response_;
  std::shared_ptr<const void> response_memory_;  ///< The share of response_.
};

}  // namespace

void serve_connection(Stream::Socket socket, asio::ssl::context* tls, HttpConnections& all,
                      const HttpOptions& options, HttpApi& api) {
  std::make_shared<Connection>(std::move(socket), tls, all, options, api)->start();
}

}  // namespace sluice::server::api
