#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>

#include "base/clock.hpp"

namespace sluice::server::api {

/// The calls for inference over gRPC: whether some are being answered, and when the last one was.
/// Thread-safe.
class Activity {
 public:
  /// One call, from its headers until its answer has left.
  class Call {
   public:
    explicit Call(Activity& all) : all_(all) { ++all_.running_; }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;
    ~Call() {
      all_.last_ns_ = base::monotonic_ns();
      --all_.running_;
    }

   private:
    Activity& all_;
  };

  /// Whether there has been no call for so long.
  [[nodiscard]] bool quiet(std::chrono::nanoseconds least) const {
    if (running_ > 0) return false;
    return base::monotonic_ns() - last_ns_ >= static_cast<std::uint64_t>(least.count());
  }

 private:
  std::atomic<int> running_{0};
  std::atomic<std::uint64_t> last_ns_{0};  ///< CLOCK_MONOTONIC
};

}  // namespace sluice::server::api
