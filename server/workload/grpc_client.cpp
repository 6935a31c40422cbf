#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/proto_buffer_reader.h>

#include <chrono>
#include <mutex>
#include <thread>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "server/api/kserve.grpc.pb.h"
#include "server/api/lock_graph.hpp"
#include "server/workload/client.hpp"

namespace sluice::server::workload {
namespace {

constexpr const char* kModelInfer = "/inference.GRPCInferenceService/ModelInfer";
/// The metadata that names the model before the message arrives.
constexpr const char* kModelHeader = "sluice-model";
constexpr std::chrono::seconds kMetadataLimit{10};

Code to_code(grpc::StatusCode code) {
  switch (code) {
    case grpc::StatusCode::OK:
      return Code::kOk;
    case grpc::StatusCode::INVALID_ARGUMENT:
      return Code::kInvalidArgument;
    case grpc::StatusCode::NOT_FOUND:
      return Code::kNotFound;
    case grpc::StatusCode::UNAVAILABLE:
      return Code::kUnavailable;
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return Code::kResourceExhausted;
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return Code::kDeadlineExceeded;
    case grpc::StatusCode::CANCELLED:
      return Code::kCancelled;
    case grpc::StatusCode::UNIMPLEMENTED:
      return Code::kUnimplemented;
    case grpc::StatusCode::UNAUTHENTICATED:
      return Code::kUnauthenticated;
    case grpc::StatusCode::PERMISSION_DENIED:
      return Code::kPermissionDenied;
    default:
      return Code::kInternal;
  }
}

/// gRPC's own errors are a chain, from what it attempted to what failed.
std::string reason(const grpc::Status& status) {
  const std::string& message = status.error_message();
  const auto last = message.rfind(": ");
  return last == std::string::npos ? message : message.substr(last + 2);
}

inference::ModelInferRequest message(const PreparedRequest& request) {
  inference::ModelInferRequest made;
  made.set_model_name(request.model);
  if (request.slo_ms) (*made.mutable_parameters())["slo_ms"].set_double_param(*request.slo_ms);
  for (const Input& input : request.inputs) {
    auto* tensor = made.add_inputs();
    tensor->set_name(input.name);
    tensor->set_datatype(std::string(engine::to_string(input.type)));
    for (const std::int64_t size : input.shape) tensor->add_shape(size);
    made.add_raw_input_contents(input.data);
  }
  return made;
}

/// The first output, if the server sent it as raw bytes.
std::optional<Output> first_output(grpc::ByteBuffer& buffer) {
  grpc::ProtoBufferReader reader(&buffer);
  inference::ModelInferResponse response;
  if (!reader.status().ok() || !response.ParseFromZeroCopyStream(&reader)) return std::nullopt;
  if (response.outputs().empty() || response.raw_output_contents().empty()) return std::nullopt;
  const auto type = engine::parse_data_type(response.outputs(0).datatype());
  if (!type) return std::nullopt;
  return Output{*type, response.raw_output_contents(0)};
}

/// What a completion queue calls with its tag.
class Event {
 public:
  virtual void completed(bool ok) = 0;

 protected:
  ~Event() = default;
};

class GrpcCall : public Call {
 public:
  GrpcCall(Done done, bool outputs) : done_(std::move(done)), outputs_(outputs) {}
  void cancel() override { context_.TryCancel(); }

  void name_model(const std::string& model) { context_.AddMetadata(kModelHeader, model); }

 protected:
  grpc::ClientContext& context() { return context_; }

  void answer() {
    Answer answer;
    answer.end_ns = base::monotonic_ns();
    answer.code = to_code(status_.error_code());
    answer.message = status_.error_message();
    if (outputs_ && status_.ok()) answer.first = first_output(response_);
    std::exchange(done_, nullptr)(std::move(answer));
  }

  grpc::ByteBuffer response_;
  grpc::Status status_;

 private:
  grpc::ClientContext context_;
  Done done_;
  bool outputs_;
};

class WholeCall final : public GrpcCall, public Event {
 public:
  using GrpcCall::GrpcCall;

  void begin(grpc::GenericStub& stub, const grpc::ByteBuffer& request, grpc::CompletionQueue& queue,
             std::shared_ptr<WholeCall> self) {
    self_ = std::move(self);
    call_ = stub.PrepareUnaryCall(&context(), kModelInfer, request, &queue);
    call_->StartCall();
    call_->Finish(&response_, &status_, static_cast<Event*>(this));
  }
  void send_body() override {}

 private:
  void completed(bool /*ok*/) override {
    const auto keep = std::move(self_);
    answer();
  }

  std::unique_ptr<grpc::GenericClientAsyncResponseReader> call_;
  std::shared_ptr<WholeCall> self_;  ///< Until the call has ended.
};

/// Headers first. A call with one message each way is, on the wire, the same as a unary one.
class HeldCall final : public GrpcCall {
 public:
  using GrpcCall::GrpcCall;

  void begin(grpc::GenericStub& stub, const grpc::ByteBuffer& request, grpc::CompletionQueue& queue,
             std::shared_ptr<HeldCall> self) {
    const std::lock_guard lock(mutex_);
    self_ = std::move(self);
    request_ = request;
    call_ = stub.PrepareCall(&context(), kModelInfer, &queue);
    ++open_;
    call_->StartCall(&started_);
  }

  void send_body() override {
    const std::lock_guard lock(mutex_);
    body_due_ = true;
    if (begun_ && !finishing_) write();
  }

 private:
  struct Step final : Event {
    Step(HeldCall& call_, void (HeldCall::*then_)(bool)) : call(call_), then(then_) {}
    void completed(bool ok) override { call.step(then, ok); }
    HeldCall& call;
    void (HeldCall::*then)(bool);
  };

  void step(void (HeldCall::*then)(bool), bool ok) {
    std::shared_ptr<HeldCall> keep;
    {
      const std::lock_guard lock(mutex_);
      --open_;
      (this->*then)(ok);
      // A write may complete behind the status.
      if (open_ == 0) keep = std::move(self_);
    }
    if (keep) answer();
  }

  void on_started(bool ok) {
    begun_ = true;
    if (!ok) return finish();
    ++open_;
    call_->Read(&response_, &read_);
    if (body_due_) write();
  }
  void on_written(bool /*ok*/) {}
  void on_read(bool /*ok*/) { finish(); }
  void on_finished(bool /*ok*/) {}

  void write() {
    ++open_;
    call_->WriteLast(request_, grpc::WriteOptions(), &written_);
  }
  void finish() {
    finishing_ = true;
    ++open_;
    call_->Finish(&status_, &finished_);
  }

  Step started_{*this, &HeldCall::on_started};
  Step written_{*this, &HeldCall::on_written};
  Step read_{*this, &HeldCall::on_read};
  Step finished_{*this, &HeldCall::on_finished};
  std::mutex mutex_;
  grpc::ByteBuffer request_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  std::shared_ptr<HeldCall> self_;  ///< Until no step is open.
  int open_ = 0;                    ///< Steps that the queue will complete.
  bool begun_ = false;
  bool body_due_ = false;
  bool finishing_ = false;
};

std::shared_ptr<grpc::Channel> make_channel(const ClientOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  // A proxy of the environment is for other hosts, and would be measured too.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const std::string target = options.host + ":" + std::to_string(options.port);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

class GrpcClient final : public Client {
 public:
  explicit GrpcClient(const ClientOptions& options)
      : options_(options),
        channel_(make_channel(options)),
        calls_(channel_),
        typed_(inference::GRPCInferenceService::NewStub(channel_)),
        thread_([this] { drain(); }) {}
  ~GrpcClient() override {
    queue_.Shutdown();
    thread_.join();
  }
  GrpcClient(const GrpcClient&) = delete;
  GrpcClient& operator=(const GrpcClient&) = delete;

  std::vector<InputSpec> inputs(const std::string& model) override {
    inference::ModelMetadataRequest request;
    request.set_name(model);
    inference::ModelMetadataResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kMetadataLimit);
    const grpc::Status status = typed_->ModelMetadata(&context, request, &response);
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
      throw base::RunError(no_model(model, known_models()));
    }
    if (!status.ok()) throw base::RunError(no_server(options_, reason(status)));
    std::vector<InputSpec> specs;
    for (const auto& input : response.inputs()) {
      specs.push_back(input_spec(model, input.name(), input.datatype(),
                                 {input.shape().begin(), input.shape().end()}));
    }
    return specs;
  }

  std::size_t prepare(const PreparedRequest& request) override {
    grpc::ByteBuffer buffer;
    bool own = false;
    const auto made = message(request);
    if (!grpc::GenericSerialize<grpc::ProtoBufferWriter, inference::ModelInferRequest>(
             made, &buffer, &own)
             .ok()) {
      throw base::RunError("model '" + request.model + "': the request cannot be encoded");
    }
    prepared_.push_back({request.model, std::move(buffer)});
    return prepared_.size() - 1;
  }

  std::shared_ptr<Call> start(std::size_t request, Begin begin, Done done) override {
    const Prepared& prepared = prepared_[request];
    if (begin == Begin::kHeaders) {
      auto call = std::make_shared<HeldCall>(std::move(done), options_.outputs);
      call->name_model(prepared.model);
      call->begin(calls_, prepared.buffer, queue_, call);
      return call;
    }
    auto call = std::make_shared<WholeCall>(std::move(done), options_.outputs);
    if (begin == Begin::kNamed) call->name_model(prepared.model);
    call->begin(calls_, prepared.buffer, queue_, call);
    return call;
  }

 private:
  struct Prepared {
    std::string model;
    grpc::ByteBuffer buffer;  ///< Copies share the bytes.
  };

  void drain() {
    void* tag = nullptr;
    bool ok = false;
    while (queue_.Next(&tag, &ok)) static_cast<Event*>(tag)->completed(ok);
  }

  std::vector<std::string> known_models() {
    inference::RepositoryIndexResponse response;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kMetadataLimit);
    if (!typed_->RepositoryIndex(&context, {}, &response).ok()) return {};
    std::vector<std::string> names;
    for (const auto& model : response.models()) names.push_back(model.name());
    return names;
  }

  ClientOptions options_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub calls_;
  std::unique_ptr<inference::GRPCInferenceService::Stub> typed_;
  std::vector<Prepared> prepared_;
  grpc::CompletionQueue queue_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Client> connect_grpc(const ClientOptions& options) {
  switch_off_lock_graph();
  return std::make_unique<GrpcClient>(options);
}

}  // namespace sluice::server::workload
