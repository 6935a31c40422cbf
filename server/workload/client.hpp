#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor.hpp"
#include "server/service/service.hpp"

/// A client of the KServe v2 protocol: what the load asks of gRPC and HTTP.
namespace sluice::server::workload {

/// An input of a model, as its metadata describes it: -1 is any size.
struct InputSpec {
  std::string name;
  engine::DataType type = engine::DataType::kFp32;
  std::vector<std::int64_t> shape;
};

struct Input {
  std::string name;
  engine::DataType type = engine::DataType::kFp32;
  std::vector<std::int64_t> shape;
  std::string data;
};

/// The one request that is sent again and again to a model.
struct PreparedRequest {
  std::string model;
  std::vector<Input> inputs;
  std::optional<double> slo_ms;
};

struct Output {
  engine::DataType type = engine::DataType::kFp32;
  std::string data;
};

struct Answer {
  Code code = Code::kOk;
  std::string message;          ///< Of an error.
  std::uint64_t end_ns = 0;     ///< base::monotonic_ns()
  std::optional<Output> first;  ///< The first output, if ClientOptions asks for outputs.
};

/// Called exactly once for each call, from a thread of the client, never from within start().
using Done = std::function<void(Answer)>;

/// A request on its way. Thread-safe; may outlive the request and the client's interest in it.
class Call {
 public:
  Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  virtual ~Call() = default;
  /// Sends the body of a call that began with its headers only. At most once.
  virtual void send_body() = 0;
  /// Ends the call soon, with kCancelled unless it has an answer.
  virtual void cancel() = 0;
};

struct ClientOptions {
  std::string host;
  int port;
  bool outputs;  ///< Whether answers have their first output.
};

/// Thread-safe. The destructor must not run while calls are open.
class Client {
 public:
  Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  virtual ~Client() = default;

  /// What a model takes. Throws RunError if there is no server, or no such model.
  [[nodiscard]] virtual std::vector<InputSpec> inputs(const std::string& model) = 0;
  /// Encodes a request. Returns its index for start(). Call it before the first start().
  virtual std::size_t prepare(const PreparedRequest& request) = 0;

  enum class Begin {
    kWhole,    ///< Headers and body at once.
    kNamed,    ///< The same, and the headers name the model.
    kHeaders,  ///< The headers, which name the model; then Call::send_body().
  };
  virtual std::shared_ptr<Call> start(std::size_t request, Begin begin, Done done) = 0;
};

[[nodiscard]] std::unique_ptr<Client> connect_grpc(const ClientOptions& options);
[[nodiscard]] std::unique_ptr<Client> connect_http(const ClientOptions& options);

/// gRPC's name of a code, such as RESOURCE_EXHAUSTED.
[[nodiscard]] std::string_view to_string(Code code);

/// One line for a user: the server at this address gives no answer.
[[nodiscard]] std::string no_server(const ClientOptions& options, const std::string& why);
/// One line for a user: the server has no such model, with the name that was perhaps meant.
[[nodiscard]] std::string no_model(const std::string& model, const std::vector<std::string>& known);
/// The input of a metadata answer. Throws RunError for a type that the protocol does not have.
[[nodiscard]] InputSpec input_spec(const std::string& model, const std::string& name,
                                   const std::string& type, std::vector<std::int64_t> shape);

}  // namespace sluice::server::workload
