#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tensor.hpp"

/// What the protocols (api/) ask of the server. No gRPC and no HTTP in here.
namespace sluice::server {

class ByteBudget;

/// The reason of a refusal. The protocols map it: gRPC to a status code, HTTP to a response code.
enum class Code : std::uint8_t {
  kOk,
  kInvalidArgument,    ///< HTTP 400
  kNotFound,           ///< 404: no such model or version
  kUnavailable,        ///< 503: not ready, model not loaded, draining
  kResourceExhausted,  ///< 429: queue full, or the deadline cannot be met
  kDeadlineExceeded,   ///< 504: the deadline passed in the queue
  kCancelled,          ///< 499: the client is gone
  kUnimplemented,      ///< 501
  kUnauthenticated,    ///< 401: no token, or a wrong one
  kPermissionDenied,   ///< 403: a control call at an address that takes none
  kInternal,           ///< 500
};

struct Status {
  Code code = Code::kOk;
  std::string message;
  double retry_after_ms = 0;  ///< With kResourceExhausted: when to try again; 0: unknown.
  /// What caused the refusal, one word for the metrics. Empty: the code says it.
  std::string_view reason = {};

  [[nodiscard]] bool ok() const { return code == Code::kOk; }
};

/// An inference. Times are base::monotonic_ns().
struct Request {
  std::string id;
  std::string model;
  std::string version;  ///< Empty: any.
  std::vector<engine::Tensor> inputs;
  std::vector<std::string> outputs;  ///< Wanted outputs; empty: all.
  std::uint64_t headers_ns = 0;      ///< When the headers arrived.
  std::uint64_t deadline_ns = 0;  ///< From `timeout`, `slo_ms` or gRPC's deadline; 0: none given.
  std::uint32_t priority = 0;     ///< 1 is the highest, 0 the default.
  std::uint64_t announced = 0;    ///< What Service::headers() returned.
  std::string trace;              ///< W3C traceparent of the answer; may be empty.
  std::shared_ptr<const void> storage;  ///< Keeps the data of `inputs` alive.
  std::size_t storage_bytes = 0;        ///< Of `storage`, as far as no budget counts them yet.
};

struct Response {
  std::vector<engine::Tensor> outputs;
  std::shared_ptr<const void> storage;  ///< Keeps the data of `outputs` alive.
  std::string version = {};             ///< That answered; empty: the one that was asked for.
};

/// Called exactly once for each request, from any thread. It must not block.
using Done = std::function<void(const Status&, const Response&)>;

/// A training job of the train store.
struct TrainRequest {
  std::string job;
  std::string args;  ///< "a=b, c=d"
  std::string id;    ///< Chosen by the client, to stop only its own jobs; may be empty.
};

/// Called exactly once for each training job, from any thread. It must not block.
using TrainDone = std::function<void(const Status&)>;

/// A cancelled request costs nothing from its next block boundary on. Thread-safe; may outlive the
/// request.
class Cancellation {
 public:
  Cancellation() = default;
  Cancellation(const Cancellation&) = delete;
  Cancellation& operator=(const Cancellation&) = delete;
  virtual ~Cancellation() = default;
  virtual void cancel() = 0;
};

struct ModelMetadata {
  std::string name;
  std::vector<std::string> versions;
  std::string platform;
  std::vector<engine::TensorSpec> inputs;
  std::vector<engine::TensorSpec> outputs;
  std::int64_t max_batch_size = 1;  ///< 0: the tensors have no batch dimension.
};

/// Counts since the model was loaded, as the statistics extension defines them. Times in ns.
struct ModelStatistics {
  struct Duration {
    std::uint64_t count = 0;
    std::uint64_t ns = 0;
  };
  std::string name;
  std::string version;
  std::uint64_t last_inference_ms = 0;  ///< CLOCK_REALTIME
  std::uint64_t inference_count = 0;    ///< Items.
  std::uint64_t execution_count = 0;    ///< Batches.
  Duration success, fail, queue, compute_input, compute_infer, compute_output;
};

struct RepositoryEntry {
  std::string name;
  std::string version;
  std::string state;  ///< READY, LOADING, UNLOADING or UNAVAILABLE
  std::string reason;
};

/// The server behind its protocols. Thread-safe.
class Service {
 public:
  Service() = default;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  virtual ~Service() = default;

  /// The headers of an inference request have arrived. model: empty if the headers do not name it.
  /// bytes: the size of the message; 0 if unknown. Returns an id for Request::announced, which
  /// infer() or forget() takes.
  [[nodiscard]] virtual std::uint64_t headers(const std::string& model, std::uint64_t bytes) = 0;
  /// The request of these headers will not come.
  virtual void forget(std::uint64_t announced) = 0;

  /// What bodies and responses take their memory from. The protocols take the share of a request
  /// before they read or parse it. The storage of a Response has its share.
  [[nodiscard]] virtual const ByteBudget& memory() const = 0;

  /// Checks, admits and queues a request. `done` may be called before this returns. Returns null if
  /// the request has already been answered.
  virtual std::shared_ptr<Cancellation> infer(Request request, Done done) = 0;

  /// A request for inference was refused before infer(). model: as the client names it; may be
  /// empty.
  virtual void refused(const std::string& model, const Status& status) = 0;

  [[nodiscard]] virtual bool live() const = 0;
  [[nodiscard]] virtual bool ready() const = 0;
  /// An empty version: any.
  [[nodiscard]] virtual bool model_ready(const std::string& model,
                                         const std::string& version) const = 0;
  /// Of a model that is loaded in this version. An empty version: the one that such requests get.
  [[nodiscard]] virtual std::optional<ModelMetadata> metadata(const std::string& model,
                                                              const std::string& version) const = 0;
  /// Of one model, or of all if `model` is empty. Nothing if there is no such model.
  [[nodiscard]] virtual std::optional<std::vector<ModelStatistics>> statistics(
      const std::string& model) const = 0;
  [[nodiscard]] virtual std::vector<RepositoryEntry> repository() const = 0;
  /// Blocks until the model is loaded, or unloaded: an unload ends the queued requests first. A
  /// model that is served already is loaded anew, and served meanwhile.
  [[nodiscard]] virtual Status load(const std::string& model) = 0;
  [[nodiscard]] virtual Status unload(const std::string& model) = 0;

  /// Runs a job of the train store; `done` is called when it has ended.
  virtual void train(const TrainRequest& request, TrainDone done) = 0;
  /// Ends the training jobs with this name and this id. Empty: any name, any id.
  [[nodiscard]] virtual Status stop_training(const std::string& job, const std::string& id) = 0;

  [[nodiscard]] virtual std::string scheduler() const = 0;
  /// kInvalidArgument, with the names that exist, for an unknown name.
  [[nodiscard]] virtual Status set_scheduler(const std::string& name) = 0;
  /// For people: queues, models, counters.
  [[nodiscard]] virtual nlohmann::json status() const = 0;
  /// The Prometheus text of /metrics.
  [[nodiscard]] virtual std::string metrics() const = 0;
  /// Drains and ends the server, as SIGTERM does.
  virtual void shut_down() = 0;
};

}  // namespace sluice::server
