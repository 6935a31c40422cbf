// g++ 12 needs <utility> in front of asio.
#include <utility>
// Boost.Beast takes most of a minute to compile, so no other file of the client has it.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <future>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/json_text.hpp"
#include "server/api/json_values.hpp"
#include "server/api/refusal.hpp"
#include "server/workload/client.hpp"

namespace sluice::server::workload {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using nlohmann::json;

constexpr const char* kJsonBytes = "Inference-Header-Content-Length";
constexpr std::chrono::seconds kMetadataLimit{10};
constexpr std::size_t kReadBytes = 1 << 16;

Code to_code(unsigned status) {
  switch (status) {
    case 200:
      return Code::kOk;
    case 400:
    case 422:
      return Code::kInvalidArgument;
    case 401:
      return Code::kUnauthenticated;
    case 403:
      return Code::kPermissionDenied;
    case 404:
      return Code::kNotFound;
    case 429:
      return Code::kResourceExhausted;
    case 499:
      return Code::kCancelled;
    case 501:
      return Code::kUnimplemented;
    case 503:
      return Code::kUnavailable;
    case 504:
      return Code::kDeadlineExceeded;
    default:
      return Code::kInternal;
  }
}

std::string percent_encoded(const std::string& text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-' || c == '_' || c == '.' || c == '~') {
      encoded += c;
    } else {
      encoded += {'%', kHex[byte >> 4U], kHex[byte & 15U]};
    }
  }
  return encoded;
}

engine::Tensor tensor_of(const Input& input) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(input.data.data());
  return {input.name, input.type, input.shape, {bytes, bytes + input.data.size()}};
}

/// binary: the tensors follow the JSON, by the extension of the protocol. Without it, `data` has
/// the values, and nothing is asked for that the protocol itself does not have.
json header(const PreparedRequest& request, bool binary) {
  json parameters = json::object();
  if (binary) parameters["binary_data_output"] = true;
  if (request.slo_ms) parameters["slo_ms"] = *request.slo_ms;
  json inputs = json::array();
  for (const Input& input : request.inputs) {
    json entry{
        {"name", input.name}, {"datatype", engine::to_string(input.type)}, {"shape", input.shape}};
    if (binary) {
      entry["parameters"] = {{"binary_data_size", input.data.size()}};
    } else {
      entry["data"] = api::values_to_json(tensor_of(input));
    }
    inputs.push_back(std::move(entry));
  }
  json made{{"inputs", std::move(inputs)}};
  if (!parameters.empty()) made["parameters"] = std::move(parameters);
  return made;
}

using Response = http::response<http::string_body>;

/// A request as the bytes on the wire.
struct Message {
  std::string head;
  std::string body;
};

/// `error` by the protocol; FastAPI, which other servers use, has `detail`.
std::string error_message(const Response& response) {
  const json parsed = json::parse(response.body(), nullptr, false);
  if (parsed.is_object() && parsed.contains("error") && parsed["error"].is_string()) {
    return parsed["error"];
  }
  std::string message = "HTTP " + std::to_string(response.result_int());
  if (parsed.is_object() && parsed.contains("detail")) {
    message += ": " + base::json_text(parsed["detail"]).substr(0, 200);
  }
  return message;
}

/// The first output. Nothing if there is none in a form that can be shown. Throws on an answer that
/// makes no sense.
std::optional<Output> first_output(const Response& response) {
  const auto json_bytes = response.find(kJsonBytes);
  const bool binary = json_bytes != response.end();
  const std::size_t begin =
      binary ? std::stoul(std::string(json_bytes->value())) : response.body().size();
  const json parsed = json::parse(response.body().substr(0, begin));
  if (!binary && parsed.value("outputs", json::array()).empty()) return std::nullopt;
  const json& output = parsed.at("outputs").at(0);
  const auto type = engine::parse_data_type(output.at("datatype").get<std::string>());
  if (!type) return std::nullopt;
  if (!binary || output.contains("data")) {
    const engine::Tensor tensor{"", *type, output.at("shape"), {}};
    const auto values = api::values_from_json(tensor, output.at("data"));
    return Output{*type, {reinterpret_cast<const char*>(values.data()), values.size()}};
  }
  const std::size_t size = output.at("parameters").at("binary_data_size");
  return Output{*type, response.body().substr(begin, size)};
}

/// A connection and what its operations refer to until they have completed.
struct Connection {
  explicit Connection(asio::io_context& context) : socket(context) {
    // Beast reads as much at once as there is room for: without this, 512 bytes.
    buffer.reserve(kReadBytes);
  }
  void close() {
    error_code ignored;
    socket.close(ignored);
  }

  tcp::socket socket;
  beast::flat_buffer buffer;
  std::optional<http::response_parser<http::string_body>> parser;
};

/// Open connections without a request. Of the io thread only.
struct Pool {
  asio::io_context context{1};
  tcp::resolver::results_type addresses;
  std::vector<std::shared_ptr<Connection>> idle;
};

/// One request and its response. All of it runs in the io thread.
class Exchange : public std::enable_shared_from_this<Exchange> {
 public:
  /// response: null if there was none, and then why.
  using Ended = std::function<void(const Response* response, const std::string& why)>;

  Exchange(Pool& pool, const Message& message, bool held, Ended ended)
      : pool_(pool), message_(message), body_due_(!held), ended_(std::move(ended)) {}

  void begin() {
    if (pool_.idle.empty()) return connect();
    connection_ = std::move(pool_.idle.back());
    pool_.idle.pop_back();
    reused_ = true;
    write_head();
  }

  void send_body() {
    body_due_ = true;
    if (ended_ && head_written_) write_body();
  }

  void cancel() {
    if (ended_) end(nullptr, kCancelled);
  }

  static constexpr const char* kCancelled = "cancelled";

 private:
  /// Calls `then` unless the operation failed or is one of a connection that was given up.
  template <class Then>
  auto handler(Then then) {
    return
        [self = shared_from_this(), connection = connection_, then](error_code error, const auto&) {
          if (connection != self->connection_ || !self->ended_) return;
          if (error) return self->failed(error);
          then(*self);
        };
  }

  void connect() {
    connection_ = std::make_shared<Connection>(pool_.context);
    asio::async_connect(connection_->socket, pool_.addresses, handler([](Exchange& self) {
                          error_code ignored;
                          self.connection_->socket.set_option(tcp::no_delay(true), ignored);
                          self.write_head();
                        }));
  }

  void write_head() {
    const bool whole = body_due_;
    const std::array<asio::const_buffer, 2> parts{
        asio::buffer(message_.head), whole ? asio::buffer(message_.body) : asio::const_buffer{}};
    asio::async_write(connection_->socket, parts, handler([whole](Exchange& self) {
                        self.body_written_ = whole;
                        self.head_written_ = true;
                        if (!whole && self.body_due_) self.write_body();
                      }));
    read();
  }

  void write_body() {
    asio::async_write(connection_->socket, asio::buffer(message_.body),
                      handler([](Exchange& self) { self.body_written_ = true; }));
  }

  /// From the start: a server may answer before it has the body.
  void read() {
    auto& parser = connection_->parser.emplace();
    parser.body_limit(std::numeric_limits<std::uint64_t>::max());
    http::async_read(connection_->socket, connection_->buffer, parser, handler([](Exchange& self) {
                       // The pool may give the connection to the next request within end().
                       const Response response = self.connection_->parser->release();
                       if (response.keep_alive() && self.body_written_) {
                         self.pool_.idle.push_back(std::exchange(self.connection_, nullptr));
                       }
                       self.end(&response, "");
                     }));
  }

  void failed(error_code error) {
    const bool stale = std::exchange(reused_, false) && !connection_->parser->got_some();
    if (!stale) return end(nullptr, error.message());
    // The server has closed a connection that was kept open. It has not seen this request.
    connection_->close();
    head_written_ = false;
    body_written_ = false;
    connect();
  }

  void end(const Response* response, const std::string& why) {
    if (connection_) connection_->close();
    connection_.reset();
    std::exchange(ended_, nullptr)(response, why);
  }

  Pool& pool_;
  const Message& message_;
  bool body_due_;
  Ended ended_;  ///< Empty: called.
  std::shared_ptr<Connection> connection_;
  bool reused_ = false;
  bool head_written_ = false;
  bool body_written_ = false;
};

class HttpCall final : public Call {
 public:
  HttpCall(asio::io_context& context, std::shared_ptr<Exchange> exchange)
      : context_(context), exchange_(std::move(exchange)) {}
  void begin() {
    asio::post(context_, [exchange = exchange_] { exchange->begin(); });
  }
  void send_body() override {
    asio::post(context_, [exchange = exchange_] { exchange->send_body(); });
  }
  void cancel() override {
    asio::post(context_, [exchange = exchange_] { exchange->cancel(); });
  }

 private:
  asio::io_context& context_;
  std::shared_ptr<Exchange> exchange_;
};

class HttpClient final : public Client {
 public:
  explicit HttpClient(const ClientOptions& options) : options_(options) {
    error_code error;
    tcp::resolver resolver(pool_.context);
    pool_.addresses = resolver.resolve(options.host, std::to_string(options.port), error);
    if (error) throw base::RunError(no_server(options, error.message()));
    thread_ = std::thread([this] { pool_.context.run(); });
  }
  ~HttpClient() override {
    work_.reset();
    pool_.context.stop();
    thread_.join();
  }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  std::vector<InputSpec> inputs(const std::string& model) override {
    const Response response = get("GET", "/v2/models/" + percent_encoded(model));
    if (response.result_int() == 404) throw base::RunError(no_model(model, known_models()));
    if (response.result_int() != 200) {
      throw base::RunError(no_server(options_, error_message(response)));
    }
    try {
      std::vector<InputSpec> specs;
      const json metadata = json::parse(response.body());
      if (metadata.at("inputs").empty()) {
        throw base::RunError(
            fmt::format("model '{}': the server does not say what it takes", model));
      }
      for (const json& input : metadata.at("inputs")) {
        specs.push_back(
            input_spec(model, input.at("name"), input.at("datatype"), input.at("shape")));
      }
      return specs;
    } catch (const json::exception& error) {
      throw base::RunError(no_server(options_, error.what()));
    }
  }

  std::size_t prepare(const PreparedRequest& request) override {
    const bool binary = takes_binary();
    auto message = std::make_unique<Message>();
    try {
      message->body = header(request, binary).dump();
    } catch (const api::Refusal& refusal) {
      throw base::RunError(fmt::format("model '{}': {}, and the server does not take binary data",
                                       request.model, refusal.status.message));
    }
    std::string headers = "Content-Type: application/json\r\n";
    if (binary) {
      headers = fmt::format("Content-Type: application/octet-stream\r\n{}: {}\r\n", kJsonBytes,
                            message->body.size());
      for (const Input& input : request.inputs) message->body += input.data;
    }
    message->head = head("POST", "/v2/models/" + percent_encoded(request.model) + "/infer",
                         message->body.size()) +
                    headers + "\r\n";
    messages_.push_back(std::move(message));
    return messages_.size() - 1;
  }

  std::shared_ptr<Call> start(std::size_t request, Begin begin, Done done) override {
    auto ended = [this, done = std::move(done)](const Response* response, const std::string& why) {
      done(answer(response, why));
    };
    auto call = std::make_shared<HttpCall>(
        pool_.context, std::make_shared<Exchange>(pool_, *messages_[request],
                                                  begin == Begin::kHeaders, std::move(ended)));
    call->begin();
    return call;
  }

 private:
  [[nodiscard]] Answer answer(const Response* response, const std::string& why) const {
    Answer answer;
    answer.end_ns = base::monotonic_ns();
    if (response == nullptr) {
      answer.code = why == Exchange::kCancelled ? Code::kCancelled : Code::kUnavailable;
      answer.message = why;
      return answer;
    }
    answer.code = to_code(response->result_int());
    if (answer.code != Code::kOk) {
      answer.message = error_message(*response);
    } else if (options_.outputs) {
      try {
        answer.first = first_output(*response);
      } catch (const api::Refusal& refusal) {
        answer.code = Code::kInternal;
        answer.message = "the answer cannot be read: " + refusal.status.message;
      } catch (const std::exception& error) {
        answer.code = Code::kInternal;
        answer.message = std::string("the answer cannot be read: ") + error.what();
      }
    }
    return answer;
  }

  [[nodiscard]] std::string head(const std::string& method, const std::string& path,
                                 std::size_t body_bytes) const {
    return method + " " + path + " HTTP/1.1\r\nHost: " + options_.host +
           "\r\nContent-Length: " + std::to_string(body_bytes) + "\r\n";
  }

  /// Whether the server says that it has the extension for tensors as bytes.
  bool takes_binary() {
    if (!binary_) {
      const json server = json::parse(get("GET", "/v2").body(), nullptr, false);
      const json extensions = server.is_object() ? server.value("extensions", json()) : json();
      binary_ = extensions.is_array() && std::find(extensions.begin(), extensions.end(),
                                                   "binary_tensor_data") != extensions.end();
    }
    return *binary_;
  }

  /// Waits for the response.
  Response get(const std::string& method, const std::string& path) {
    // Shared with the handlers, which may outlive a wait that ends early.
    struct Shared {
      Message message;
      std::promise<Response> promise;
    };
    auto shared = std::make_shared<Shared>();
    if (method == "POST") shared->message.body = "{}";
    shared->message.head =
        head(method, path, shared->message.body.size()) + "Content-Type: application/json\r\n\r\n";
    auto future = shared->promise.get_future();
    auto exchange = std::make_shared<Exchange>(
        pool_, shared->message, false, [shared](const Response* response, const std::string& why) {
          if (response != nullptr) return shared->promise.set_value(*response);
          shared->promise.set_exception(std::make_exception_ptr(std::runtime_error(why)));
        });
    HttpCall call(pool_.context, exchange);
    call.begin();
    if (future.wait_for(kMetadataLimit) != std::future_status::ready) call.cancel();
    try {
      return future.get();
    } catch (const std::runtime_error& error) {
      throw base::RunError(no_server(options_, error.what()));
    }
  }

  std::vector<std::string> known_models() {
    const Response response = get("POST", "/v2/repository/index");
    const json index = json::parse(response.body(), nullptr, false);
    if (!index.is_array()) return {};
    std::vector<std::string> names;
    for (const json& entry : index) names.push_back(entry.value("name", ""));
    return names;
  }

  ClientOptions options_;
  Pool pool_;
  asio::executor_work_guard<asio::io_context::executor_type> work_{pool_.context.get_executor()};
  std::optional<bool> binary_;  ///< Of takes_binary(), once it is known.
  std::vector<std::unique_ptr<Message>> messages_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Client> connect_http(const ClientOptions& options) {
  return std::make_unique<HttpClient>(options);
}

}  // namespace sluice::server::workload
