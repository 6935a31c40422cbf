#pragma once
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "server/api/generic_calls.hpp"
#include "server/service/service.hpp"

namespace sluice::server::api {

/// grpc.health.v1: answers whether `service` is ready, for the server and for its inference
/// service. The calls must have ended before.
class Health {
 public:
  static constexpr const char* kCheck = "/grpc.health.v1.Health/Check";
  static constexpr const char* kWatch = "/grpc.health.v1.Health/Watch";

  explicit Health(const Service& service);
  Health(const Health&) = delete;
  Health& operator=(const Health&) = delete;

  [[nodiscard]] std::unique_ptr<GenericCall::Handler> check(GenericCall& call);
  [[nodiscard]] std::unique_ptr<GenericCall::Handler> watch(GenericCall& call);

 private:
  class Check;
  class Watch;
  /// A status of grpc.health.v1 for the service of this name.
  [[nodiscard]] int status_of(const std::string& service) const;
  void look(const std::stop_token& stop);

  const Service& service_;
  std::atomic<bool> ready_;  ///< Of service_, 50 ms ago at most.
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::set<Watch*> watches_;
  std::jthread thread_;  ///< Reports changes to watches_.
};

}  // namespace sluice::server::api
