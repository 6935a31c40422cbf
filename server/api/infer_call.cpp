#include "server/api/infer_call.hpp"

#include <memory>
#include <string>
#include <utility>

#include "server/api/call_state.hpp"
#include "server/api/grpc_status.hpp"
#include "server/api/proto_codec.hpp"
#include "server/api/refusal.hpp"
#include "server/api/request_rules.hpp"
#include "server/api/trace.hpp"

namespace sluice::server::api {
namespace {

constexpr std::string_view kModelInfer = "/inference.GRPCInferenceService/ModelInfer";
/// Metadata with which a client names the model before the message arrives.
constexpr const char* kModelHeader = "sluice-model";

std::string header(const grpc::ServerContextBase& context, const char* name) {
  const auto& headers = context.client_metadata();
  const auto at = headers.find(name);
  return at == headers.end() ? "" : std::string(at->second.data(), at->second.size());
}

/// The call's deadline on the monotonic clock; 0: none.
std::uint64_t deadline_ns(const grpc::ServerContextBase& context) {
  using std::chrono::system_clock;
  const auto left = context.deadline() - system_clock::now();
  // A call without a deadline has one in the far future.
  if (left > std::chrono::hours(24 * 365)) return 0;
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(left).count();
  return base::monotonic_ns() + static_cast<std::uint64_t>(std::max<std::int64_t>(ns, 1));
}

/// A slow reader gets a second for each 64 KiB, as over HTTP.
std::chrono::milliseconds write_limit(std::chrono::milliseconds least, std::size_t bytes) {
  return least + std::chrono::milliseconds(bytes * 1000 / (64 << 10));
}

/// One ModelInfer. Deletes itself in OnDone().
class InferCall final : public grpc::ServerGenericBidiReactor {
 public:
  InferCall(Service& service, grpc::GenericCallbackServerContext& context, const CallLimits& limits,
            TimeLimits& time_limits, Activity& activity)
      : active_(activity),
        service_(service),
        context_(context),
        limits_(limits),
        trace_(next_traceparent(header(context, "traceparent"))),
        announcement_(service, header(context, kModelHeader), 0),
        reading_(time_limits),
        writing_(time_limits) {
    if (!trace_.empty()) context.AddTrailingMetadata("traceparent", trace_);
    reading_.start(context, limits.read);
    StartRead(&message_);
  }

 private:
  void OnReadDone(bool ok) override {
    reading_.stop();
    if (!ok) {
      // gRPC has already refused a message over the limit. Otherwise the client is gone, or has
      // closed its side without a message.
      service_.refused("", {Code::kInvalidArgument, "", 0, "cut_off"});
      return Finish({grpc::StatusCode::INVALID_ARGUMENT, "the call has no message"});
    }
    try {
      infer();
    } catch (const Refusal& refusal) {
      service_.refused("", with_reason(refusal.status, "malformed"));
      Finish(to_grpc(refusal.status, context_));
    }
  }

  void infer() {
    auto share = share_of(service_.memory(), message_.Length());
    Request request = decode_infer(message_, announcement_.headers_ns());
    message_.Clear();
    count_memory(request, std::move(share));
    lower_deadline(request, deadline_ns(context_));
    request.announced = announcement_.take();
    request.trace = trace_;
    Done done = [this, echo = echo_of(request)](const Status& status, const Response& response) {
      answer(echo, status, response);
    };
    // This object outlives the function, even if the request is answered within infer().
    cancel_.set(service_.infer(std::move(request), std::move(done)));
  }

  void answer(const Echo& echo, const Status& status, const Response& response) {
    if (!status.ok()) return Finish(to_grpc(status, context_));
    message_ = encode_infer(echo, response);
    writing_.start(context_, write_limit(limits_.write, message_.Length()));
    StartWriteAndFinish(&message_, grpc::WriteOptions(), grpc::Status::OK);
  }

  void OnCancel() override { cancel_.cancel(); }
  void OnDone() override { delete this; }

  const Activity::Call active_;
  Service& service_;
  grpc::GenericCallbackServerContext& context_;
  const CallLimits limits_;
  const std::string trace_;
  Announcement announcement_;
  grpc::ByteBuffer message_;
  CancelOnce cancel_;
  TimeLimits::Limit reading_;
  TimeLimits::Limit writing_;
};

class Refused final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refused(const grpc::Status& status) { Finish(status); }

 private:
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerGenericBidiReactor* GenericCalls::CreateReactor(
    grpc::GenericCallbackServerContext* context) {
  Status status = check_access(access_, Right::kUse, *context);
  if (status.ok() && context->method() != kModelInfer) {
    status = {Code::kUnimplemented, context->method() + " is not served"};
  }
  if (!status.ok()) {
    if (context->method() == kModelInfer) service_.refused("", with_reason(status, "token"));
    return new Refused(to_grpc(status, *context));
  }
  return new InferCall(service_, *context, limits_, time_limits_, activity_);
}

}  // namespace sluice::server::api
