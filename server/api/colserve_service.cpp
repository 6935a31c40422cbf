#include "server/api/colserve_service.hpp"

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "server/api/call_state.hpp"
#include "server/api/descriptions.hpp"
#include "server/api/grpc_status.hpp"
#include "server/api/refusal.hpp"
#include "server/api/request_rules.hpp"

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

/// One Inference. gRPC keeps the message and the response as long as the call. Deletes itself in
/// OnDone().
class Call final : public grpc::ServerUnaryReactor {
 public:
  Call(Service& service, Activity& activity, grpc::CallbackServerContext& context,
       const colserve::InferRequest& from, colserve::InferResult& response)
      : active_(activity),
        context_(context),
        response_(response),
        memory_(service.memory()),
        bytes_(from.SpaceUsedLong()) {
    try {
      if (!memory_.resize(bytes_)) throw Refusal{memory_full()};
      Request request = decode(from, model_metadata(service, from.model(), ""));
      cancel_.set(service.infer(
          std::move(request),
          [this](const Status& status, const Response& result) { answer(status, result); }));
    } catch (const Refusal& refusal) {
      service.refused(from.model(), with_reason(refusal.status, "malformed"));
      Finish(to_grpc(refusal.status, context_));
    }
  }

 private:
  void answer(const Status& status, const Response& result) {
    if (!status.ok()) return Finish(to_grpc(status, context_));
    // gRPC makes a copy of the message to send it.
    for (const engine::Tensor& output : result.outputs) bytes_ += 2 * output.data.size();
    if (!memory_.resize(bytes_)) return Finish(to_grpc(memory_full(), context_));
    response_.set_result("ok");
    for (const engine::Tensor& output : result.outputs) {
      auto& to = *response_.add_outputs();
      to.set_dtype(name_of(output.type));
      to.mutable_shape()->Assign(output.shape.begin(), output.shape.end());
      to.set_data(output.data.data(), output.data.size());
    }
    Finish(grpc::Status::OK);
  }

  void OnCancel() override { cancel_.cancel(); }
  void OnDone() override { delete this; }

  const Activity::Call active_;
  grpc::CallbackServerContext& context_;
  colserve::InferResult& response_;
  ByteBudget::Share memory_;  ///< Of the message and the response, as long as gRPC keeps them.
  std::size_t bytes_ = 0;
  CancelOnce cancel_;
};

grpc::ServerUnaryReactor* finish(grpc::CallbackServerContext& context, const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context.DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

}  // namespace

ColserveService::Reactor* ColserveService::refused(Context& context, Right right) const {
  const server::Status status = check_access(access_, right, context);
  return status.ok() ? nullptr : finish(context, to_grpc(status, context));
}

ColserveService::Reactor* ColserveService::GetServerStatus(
    Context* context, const colserve::EmptyRequest* /*request*/, colserve::ServerStatus* response) {
  if (Reactor* const no = refused(*context, Right::kProbe)) return no;
  response->set_status(served_.ready() ? "running" : "not ready");
  return finish(*context, grpc::Status::OK);
}

ColserveService::Reactor* ColserveService::Shutdown(Context* context,
                                                    const colserve::EmptyRequest* /*request*/,
                                                    colserve::EmptyRequest* /*response*/) {
  if (Reactor* const no = refused(*context, Right::kControl)) return no;
  // The drain that follows waits for this call, too.
  Reactor* reactor = finish(*context, grpc::Status::OK);
  served_.shut_down();
  return reactor;
}

ColserveService::Reactor* ColserveService::Inference(Context* context,
                                                     const colserve::InferRequest* request,
                                                     colserve::InferResult* response) {
  if (Reactor* const no = refused(*context, Right::kUse)) return no;
  return new Call(served_, activity_, *context, *request, *response);
}

ColserveService::Reactor* ColserveService::Train(Context* context,
                                                 const colserve::TrainRequest* request,
                                                 colserve::TrainResult* response) {
  if (Reactor* const no = refused(*context, Right::kControl)) return no;
  // The call lasts as long as the job. The job goes on without a client that has left.
  Reactor* reactor = context->DefaultReactor();
  served_.train({request->model(), request->args(), request->id()},
                [context, response, reactor](const server::Status& status) {
                  if (status.ok()) response->set_result("train ok");
                  reactor->Finish(to_grpc(status, *context));
                });
  return reactor;
}

ColserveService::Reactor* ColserveService::TrainStop(Context* context,
                                                     const colserve::TrainRequest* request,
                                                     colserve::TrainResult* response) {
  if (Reactor* const no = refused(*context, Right::kControl)) return no;
  const server::Status status = served_.stop_training(request->model(), request->id());
  if (status.ok()) response->set_result("stopped");
  return finish(*context, to_grpc(status, *context));
}

ColserveService::Reactor* ColserveService::SetScheduler(Context* context,
                                                        const colserve::SchedulerRequest* request,
                                                        colserve::SchedulerResult* response) {
  if (Reactor* const no = refused(*context, Right::kControl)) return no;
  const server::Status status = served_.set_scheduler(request->name());
  if (status.ok()) response->set_name(served_.scheduler());
  return finish(*context, to_grpc(status, *context));
}

ColserveService::Reactor* ColserveService::Status(Context* context,
                                                  const colserve::EmptyRequest* /*request*/,
                                                  colserve::StatusResult* response) {
  if (Reactor* const no = refused(*context, Right::kUse)) return no;
  // The reason why a model was not loaded may have bytes of a damaged file.
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;
  response->set_json(served_.status().dump(-1, ' ', false, kReplace));
  return finish(*context, grpc::Status::OK);
}

}  // namespace sluice::server::api
