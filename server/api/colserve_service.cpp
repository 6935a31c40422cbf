#include "server/api/colserve_service.hpp"

#include <array>
#include <future>
#include <string>
#include <string_view>
#include <utility>

#include "base/json_text.hpp"
#include "server/api/descriptions.hpp"
#include "server/api/grpc_status.hpp"
#include "server/api/message.hpp"
#include "server/api/refusal.hpp"
#include "server/api/request_rules.hpp"
#include "server/api/unary_call.hpp"

namespace sluice::server::api {
namespace {

/// The names of data types that the published client sends.
struct TypeName {
  std::string_view theirs;
  engine::DataType ours;
};
constexpr std::array kTypeNames{
    TypeName{"bool", engine::DataType::kBool},     TypeName{"uint8", engine::DataType::kUint8},
    TypeName{"uint16", engine::DataType::kUint16}, TypeName{"uint32", engine::DataType::kUint32},
    TypeName{"uint64", engine::DataType::kUint64}, TypeName{"int8", engine::DataType::kInt8},
    TypeName{"int16", engine::DataType::kInt16},   TypeName{"int32", engine::DataType::kInt32},
    TypeName{"int64", engine::DataType::kInt64},   TypeName{"float16", engine::DataType::kFp16},
    TypeName{"bfloat16", engine::DataType::kBf16}, TypeName{"float32", engine::DataType::kFp32},
    TypeName{"float64", engine::DataType::kFp64},
};

engine::DataType type_of(const std::string& tensor, const std::string& name) {
  for (const TypeName& known : kTypeNames) {
    if (known.theirs == name) return known.ours;
  }
  return data_type(tensor, name);
}

std::string name_of(engine::DataType type) {
  for (const TypeName& known : kTypeNames) {
    if (known.ours == type) return std::string(known.theirs);
  }
  return std::string(engine::to_string(type));
}

/// The tensors have no names: they are in the order of the model's inputs.
Request decode(const colserve::InferRequest& from, const ModelMetadata& metadata) {
  const auto count = static_cast<std::size_t>(from.inputs_size());
  if (count != metadata.inputs.size()) {
    refuse("found " + std::to_string(count) + " inputs, expected " +
           std::to_string(metadata.inputs.size()));
  }
  Request request;
  request.model = from.model();
  request.headers_ns = base::monotonic_ns();
  for (std::size_t i = 0; i < count; ++i) {
    const auto& input = from.inputs(static_cast<int>(i));
    const std::string& name = metadata.inputs[i].name;
    const engine::Tensor tensor{name,
                                type_of(name, input.dtype()),
                                {input.shape().begin(), input.shape().end()},
                                std::as_bytes(std::span(input.data()))};
    check_tensor(tensor);
    request.inputs.push_back(tensor);
  }
  return request;
}

/// One Inference. Keeps the parsed message, because the tensors point into it.
class InferenceCall final : public GenericCall::Handler {
 public:
  InferenceCall(Service& service, Activity& activity, GenericCall& call)
      : active_(activity), service_(service), call_(call), memory_(service.memory()) {}

 private:
  void has_read(bool ok) override {
    if (!ok) {
      service_.refused("", {Code::kInvalidArgument, "", 0, "cut_off"});
      return call_.finish({grpc::StatusCode::INVALID_ARGUMENT, "the call has no message"});
    }
    try {
      if (!parse(call_.message(), from_)) refuse("the message is not an InferRequest");
      bytes_ = from_.SpaceUsedLong();
      if (!memory_.resize(bytes_)) throw Refusal{memory_full()};
      Request request = decode(from_, model_metadata(service_, from_.model(), ""));
      call_.cancels(service_.infer(
          std::move(request),
          [this](const Status& status, const Response& result) { answer(status, result); }));
    } catch (const Refusal& refusal) {
      service_.refused(from_.model(), with_reason(refusal.status, "malformed"));
      call_.finish(to_grpc(refusal.status, call_.context()));
    }
  }

  void answer(const Status& status, const Response& result) {
    if (!status.ok()) return call_.finish(to_grpc(status, call_.context()));
    // The message is copied to be sent.
    for (const engine::Tensor& output : result.outputs) bytes_ += 2 * output.data.size();
    if (!memory_.resize(bytes_)) return call_.finish(to_grpc(memory_full(), call_.context()));
    colserve::InferResult response;
    response.set_result("ok");
    for (const engine::Tensor& output : result.outputs) {
      auto& to = *response.add_outputs();
      to.set_dtype(name_of(output.type));
      to.mutable_shape()->Assign(output.shape.begin(), output.shape.end());
      to.set_data(output.data.data(), output.data.size());
    }
    call_.message() = serialized(response);
    call_.write_and_finish();
  }

  const Activity::Call active_;
  Service& service_;
  GenericCall& call_;
  colserve::InferRequest from_;
  ByteBudget::Share memory_;  ///< Of both messages, until the call ends.
  std::size_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<GenericCall::Handler> inference_call(Service& service, Activity& activity,
                                                     GenericCall& call) {
  return std::make_unique<InferenceCall>(service, activity, call);
}

GenericCalls::Methods colserve_methods(const Service& service) {
  using namespace colserve;
  const auto status = unary<EmptyRequest, ServerStatus>(
      service.memory(), Right::kProbe, [&service](const auto&, auto& to) {
        to.set_status(service.ready() ? "running" : "not ready");
      });
  return {{"/colserve.ColServe/GetServerStatus", status},
          {"/ColServe/GetServerStatus", status},
          {"/colserve.ColServe/Status",
           unary<EmptyRequest, StatusResult>(service.memory(), Right::kUse,
                                             [&service](const auto&, auto& to) {
                                               // The reason why a model was not loaded may have
                                               // bytes of a damaged file.
                                               to.set_json(base::json_text(service.status()));
                                             })}};
}

grpc::Status ColserveService::checked(Context& context, Right right) const {
  return to_grpc(check_access(access_, right, context), context);
}

grpc::Status ColserveService::Shutdown(Context* context, const colserve::EmptyRequest* /*request*/,
                                       colserve::EmptyRequest* /*response*/) {
  if (auto no = checked(*context, Right::kControl); !no.ok()) return no;
  served_.shut_down();  // The drain that follows waits for this call, too.
  return grpc::Status::OK;
}

grpc::Status ColserveService::Train(Context* context, const colserve::TrainRequest* request,
                                    colserve::TrainResult* response) {
  if (auto no = checked(*context, Right::kControl); !no.ok()) return no;
  // The call, and a thread of gRPC's, last as long as the job. The job goes on without a client
  // that has left.
  std::promise<server::Status> ended;
  served_.train({request->model(), request->args(), request->id()},
                [&](const server::Status& status) { ended.set_value(status); });
  const server::Status status = ended.get_future().get();
  if (status.ok()) response->set_result("train ok");
  return to_grpc(status, *context);
}

grpc::Status ColserveService::TrainStop(Context* context, const colserve::TrainRequest* request,
                                        colserve::TrainResult* response) {
  if (auto no = checked(*context, Right::kControl); !no.ok()) return no;
  const server::Status status = served_.stop_training(request->model(), request->id());
  if (status.ok()) response->set_result("stopped");
  return to_grpc(status, *context);
}

grpc::Status ColserveService::SetScheduler(Context* context,
                                           const colserve::SchedulerRequest* request,
                                           colserve::SchedulerResult* response) {
  if (auto no = checked(*context, Right::kControl); !no.ok()) return no;
  const server::Status status = served_.set_scheduler(request->name());
  if (status.ok()) response->set_name(served_.scheduler());
  return to_grpc(status, *context);
}

}  // namespace sluice::server::api
