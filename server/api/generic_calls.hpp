#pragma once
#include <grpcpp/completion_queue.h>
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server_builder.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/api/access.hpp"
#include "server/api/call_state.hpp"
#include "server/api/codec_pool.hpp"
#include "server/api/time_limits.hpp"
#include "server/service/service.hpp"

namespace sluice::server::api {

/// How long a call may take.
struct CallLimits {
  std::chrono::milliseconds read{60'000};   ///< For a whole message, from its headers on.
  std::chrono::milliseconds write{30'000};  ///< For a response, and a second for each 64 KiB of it.
};

class GenericCalls;

/// One call of any method. A handler calls read(), write() and one of the two that finish, each
/// when the one before is done. Deletes itself, on a thread of the queue or of the pool.
class GenericCall {
 public:
  /// What answers a call. It is called by one thread at a time, and must not block.
  class Handler {
   public:
    Handler() = default;
    Handler(const Handler&) = delete;
    Handler& operator=(const Handler&) = delete;
    /// When the call has ended: the answer has left, or the client is gone.
    virtual ~Handler() = default;
    /// After read(). ok: the message is in message(). Otherwise there is none, gRPC has refused it,
    /// or the client is gone.
    virtual void has_read(bool ok) = 0;
    /// How much there is to do in has_read(), as CodecPool::post().
    [[nodiscard]] virtual std::size_t work(grpc::ByteBuffer& message) { return message.Length(); }
    /// After write().
    virtual void has_written() {}
  };

  /// Waits for a client.
  explicit GenericCall(GenericCalls& all);
  GenericCall(const GenericCall&) = delete;
  GenericCall& operator=(const GenericCall&) = delete;

  [[nodiscard]] grpc::GenericServerContext& context() { return context_; }
  /// The message that has been read, or is to be written.
  [[nodiscard]] grpc::ByteBuffer& message() { return message_; }
  void read();
  void write();
  void write_and_finish();
  void finish(const grpc::Status& status);
  /// What is cancelled if the client leaves or the deadline passes; may be null.
  void cancels(std::shared_ptr<Cancellation> handle) { cancel_.set(std::move(handle)); }

 private:
  friend GenericCalls;
  /// What the queue gives back when a part of a call is done.
  struct Tag {
    GenericCall* call;
    void (GenericCall::*done)(bool ok);
  };

  ~GenericCall();
  void arrived(bool ok);
  void has_read(bool ok);
  /// Passes what has_read() gave on.
  void handle(bool ok);
  void has_written(bool ok);
  void has_finished(bool ok);
  void closed(bool ok);
  void release();

  GenericCalls& all_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer message_;
  CancelOnce cancel_;
  TimeLimits::Limit reading_;
  TimeLimits::Limit writing_;
  std::unique_ptr<Handler> handler_;
  bool large_ = false;
  Tag next_{this, &GenericCall::arrived};
  Tag closed_{this, &GenericCall::closed};
  std::atomic<int> uses_{2};  ///< next_ and closed_ have to come back.
};

/// The calls that are entered at their headers, and all that nobody serves. The methods of a typed
/// service are entered when their message is complete: too late for an announcement.
///
/// They have a completion queue and threads of their own. One thread polls as long as messages are
/// small: any other that waits for the same connections would be woken for each event. So no
/// service of this server may use gRPC's callback API, whose threads wait for all connections.
class GenericCalls {
 public:
  struct Method {
    Right right;
    bool inference;  ///< A call without the right is counted as a refused inference.
    std::function<std::unique_ptr<GenericCall::Handler>(GenericCall&)> handler;
  };
  using Methods = std::map<std::string, Method>;  ///< By path.

  /// service, access: must live longer.
  GenericCalls(Service& service, const Access& access, const CallLimits& limits, Methods methods)
      : service_(service), access_(access), limits_(limits), methods_(std::move(methods)) {}
  GenericCalls(const GenericCalls&) = delete;
  GenericCalls& operator=(const GenericCalls&) = delete;

  /// Before the server is built.
  void add_to(grpc::ServerBuilder& builder);
  /// Serves from now on.
  void start();
  /// Returns when all calls have ended. After the server's shutdown, which ends them.
  void end();

 private:
  friend GenericCall;
  void serve();
  /// Changes the number of calls with a large message.
  void count_large(int more);

  Service& service_;
  const Access& access_;
  const CallLimits limits_;
  const Methods methods_;
  TimeLimits time_limits_;
  grpc::AsyncGenericService calls_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::atomic<int> open_{0};  ///< Calls, also the one that waits for a client.
  std::mutex mutex_;
  std::condition_variable changed_;
  int polling_ = 0;  ///< Threads; one, and one more for each call with a large message.
  int large_ = 0;
  bool ending_ = false;
  CodecPool pool_;  ///< Parses large messages.
  std::vector<std::jthread> threads_;
};

}  // namespace sluice::server::api
