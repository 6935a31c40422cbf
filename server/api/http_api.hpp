#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "server/api/access.hpp"
#include "server/api/codec_pool.hpp"
#include "server/api/http_call.hpp"
#include "server/api/workers.hpp"
#include "server/service/service.hpp"

/// What each request over HTTP does. Knows nothing of sockets.
namespace sluice::server::api {

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
