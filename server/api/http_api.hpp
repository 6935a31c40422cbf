#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/api/access.hpp"
#include "server/api/codec_pool.hpp"
#include "server/api/json_codec.hpp"
#include "server/api/workers.hpp"
#include "server/service/service.hpp"

/// What each request over HTTP does. Knows nothing of sockets.
namespace sluice::server::api {

/// The headers that matter.
struct HttpHead {
  std::string method;
  std::string target;
  std::uint64_t content_length = 0;
  std::string content_encoding;
  std::string accept_encoding;
  std::string inference_header_length;  ///< Inference-Header-Content-Length
  std::string authorization;
  std::string origin;
  std::string traceparent;
};

struct HttpReply {
  unsigned status = 200;
  std::string body;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  std::shared_ptr<const void> memory = nullptr;  ///< The share of the body, if it is counted.
};

/// {"error": message}
[[nodiscard]] HttpReply error_reply(unsigned status, const std::string& message);
[[nodiscard]] HttpReply error_reply(const Status& status);

/// Makes the reply. Called once, by the connection in its own thread, so that the dispatcher of the
/// service encodes nothing. Takes no long time: CodecPool has made what does.
using MakeReply = std::function<HttpReply()>;
/// Called exactly once for each request that runs, from any thread.
using ReplyDone = std::function<void(MakeReply)>;

/// A request from its headers to its reply.
class HttpCall {
 public:
  HttpCall() = default;
  HttpCall(const HttpCall&) = delete;
  HttpCall& operator=(const HttpCall&) = delete;
  virtual ~HttpCall() = default;

  /// The body has arrived. At most once.
  virtual void run(Body body, ReplyDone done) = 0;
  /// The client is gone. `done` is still called.
  virtual void cancel() {}
};

class HttpApi {
 public:
  HttpApi(Service& service, Workers& workers, CodecPool& pool, std::size_t max_request_bytes,
          Access access)
      : service_(service),
        workers_(workers),
        pool_(pool),
        max_request_bytes_(max_request_bytes),
        access_(std::move(access)) {}

  /// Of the body of a request to this target, also when inflated.
  [[nodiscard]] std::size_t max_body_bytes(const std::string& target) const;
  /// Finds the call and announces an inference. Throws HttpReply for a request that is refused by
  /// its headers.
  [[nodiscard]] std::shared_ptr<HttpCall> begin(const HttpHead& head);
  /// A request was refused by the connection. status: of HTTP; reason: see Status::reason.
  void refused(const std::string& target, unsigned status, std::string_view reason);
  /// What bodies take their memory from.
  [[nodiscard]] const ByteBudget& memory() const { return service_.memory(); }

 private:
  Service& service_;
  Workers& workers_;
  CodecPool& pool_;
  std::size_t max_request_bytes_;
  Access access_;
};

}  // namespace sluice::server::api
