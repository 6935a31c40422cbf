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

class InferCall final : public GenericCall::Handler {
 public:
  InferCall(Service& service, Activity& activity, GenericCall& call)
      : active_(activity),
        service_(service),
        call_(call),
        trace_(next_traceparent(header(call.context(), "traceparent"))),
        announcement_(service, header(call.context(), kModelHeader), 0) {
    if (!trace_.empty()) call.context().AddTrailingMetadata("traceparent", trace_);
  }

 private:
  std::size_t work(grpc::ByteBuffer& message) override { return decoding_work(message); }

  void has_read(bool ok) override {
    if (!ok) {
      // gRPC has already refused a message over the limit. Otherwise the client is gone, or has
      // closed its side without a message.
      service_.refused("", {Code::kInvalidArgument, "", 0, "cut_off"});
      return call_.finish({grpc::StatusCode::INVALID_ARGUMENT, "the call has no message"});
    }
    try {
      infer();
    } catch (const Refusal& refusal) {
      service_.refused("", with_reason(refusal.status, "malformed"));
      call_.finish(to_grpc(refusal.status, call_.context()));
    }
  }

  void infer() {
    grpc::ByteBuffer& message = call_.message();
    auto share = share_of(service_.memory(), message.Length());
    Request request = decode_infer(message, announcement_.headers_ns());
    message.Clear();
    count_memory(request, std::move(share));
    lower_deadline(request, deadline_ns(call_.context()));
    request.announced = announcement_.take();
    request.trace = trace_;
    Done done = [this, echo = echo_of(request)](const Status& status, const Response& response) {
      answer(echo, status, response);
    };
    // The call outlives the function, even if the request is answered within infer().
    call_.cancels(service_.infer(std::move(request), std::move(done)));
  }

  void answer(const Echo& echo, const Status& status, const Response& response) {
    if (!status.ok()) return call_.finish(to_grpc(status, call_.context()));
    call_.message() = encode_infer(echo, response);
    call_.write_and_finish();
  }

  const Activity::Call active_;
  Service& service_;
  GenericCall& call_;
  const std::string trace_;
  Announcement announcement_;
};

}  // namespace

std::unique_ptr<GenericCall::Handler> infer_call(Service& service, Activity& activity,
                                                 GenericCall& call) {
  return std::make_unique<InferCall>(service, activity, call);
}

}  // namespace sluice::server::api
