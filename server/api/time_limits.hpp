#pragma once
#include <grpcpp/server_context.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

namespace sluice::server::api {

/// Cancels calls of gRPC that do not get on in time. An alarm of gRPC would wake one of its threads
/// for each call, also for those that are in time. Thread-safe.
class TimeLimits {
  using Clock = std::chrono::steady_clock;

 public:
  TimeLimits();
  TimeLimits(const TimeLimits&) = delete;
  TimeLimits& operator=(const TimeLimits&) = delete;

  /// One limit of one call.
  class Limit {
   public:
    explicit Limit(TimeLimits& all) : all_(all) {}
    Limit(const Limit&) = delete;
    Limit& operator=(const Limit&) = delete;
    ~Limit() { stop(); }

    /// Cancels the call of `context` after so long. At most once.
    void start(grpc::ServerContextBase& context, std::chrono::milliseconds limit);
    /// From now on the context may be gone.
    void stop();

   private:
    friend TimeLimits;
    TimeLimits& all_;
    std::optional<std::multimap<Clock::time_point, Limit*>::iterator> running_;  ///< In all_.
    grpc::ServerContextBase* context_ = nullptr;
  };

 private:
  void watch(const std::stop_token& stop);

  std::mutex mutex_;  ///< Also held while a call is cancelled: its context must not go.
  std::condition_variable_any changed_;
  std::multimap<Clock::time_point, Limit*> running_;
  Clock::time_point looks_at_;  ///< When thread_ looks again by itself.
  std::jthread thread_;
};

}  // namespace sluice::server::api
