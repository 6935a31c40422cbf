#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/api/json_codec.hpp"
#include "server/service/service.hpp"

/// A request over HTTP between its headers and its reply. Knows nothing of sockets.
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

}  // namespace sluice::server::api
