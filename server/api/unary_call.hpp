#pragma once
#include <functional>
#include <memory>
#include <utility>

#include "server/api/generic_calls.hpp"
#include "server/api/grpc_status.hpp"
#include "server/api/message.hpp"
#include "server/api/refusal.hpp"
#include "server/service/byte_budget.hpp"

namespace sluice::server::api {

/// A call that is answered at once, on the completion queue. A method of the synchronous API would
/// keep a thread until the client has read the answer, and there are only so many threads.
template <class Request, class Response>
class UnaryCall final : public GenericCall::Handler {
 public:
  /// Fills the answer in. Must not block. May throw Refusal.
  using Fill = std::function<void(const Request&, Response&)>;

  UnaryCall(GenericCall& call, const ByteBudget& memory, Fill fill)
      : call_(call), memory_(memory), fill_(std::move(fill)) {}

 private:
  void has_read(bool ok) override {
    Request request;
    Response response;
    try {
      if (!ok) refuse("the call has no message");
      if (!parse(call_.message(), request)) {
        refuse("the message is not a " + Request::descriptor()->name());
      }
      fill_(request, response);
      call_.message() = serialized(response);
      // Probes are answered also when the memory is full.
      const std::size_t bytes = call_.message().Length();
      if (bytes > kSmall && !memory_.resize(bytes)) throw Refusal{memory_full()};
    } catch (const Refusal& refusal) {
      return call_.finish(to_grpc(refusal.status, call_.context()));
    }
    call_.write_and_finish();
  }

  static constexpr std::size_t kSmall = 1024;

  GenericCall& call_;
  ByteBudget::Share memory_;  ///< Of the answer, until it has left.
  Fill fill_;
};

/// A method whose calls `fill` answers. memory: of the answers; must live longer.
template <class Request, class Response>
GenericCalls::Method unary(const ByteBudget& memory, Right right,
                           std::function<void(const Request&, Response&)> fill) {
  return {right, false, [&memory, fill = std::move(fill)](GenericCall& call) {
            return std::make_unique<UnaryCall<Request, Response>>(call, memory, fill);
          }};
}

}  // namespace sluice::server::api
