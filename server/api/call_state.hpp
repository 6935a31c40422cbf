#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/clock.hpp"
#include "server/service/service.hpp"

/// What a call of either protocol holds between its headers and its answer.
namespace sluice::server::api {

/// The announcement of a request at its headers. Ends in exactly one infer(), which takes the id,
/// or one forget(). Not thread-safe.
class Announcement {
 public:
  Announcement(Service& service, const std::string& model, std::uint64_t bytes)
      : service_(service), headers_ns_(base::monotonic_ns()), id_(service.headers(model, bytes)) {}
  Announcement(const Announcement&) = delete;
  Announcement& operator=(const Announcement&) = delete;
  ~Announcement() {
    if (id_ != 0) service_.forget(id_);
  }

  [[nodiscard]] std::uint64_t headers_ns() const { return headers_ns_; }
  /// The id for a request that goes to infer() now.
  [[nodiscard]] std::uint64_t take() { return std::exchange(id_, 0); }

 private:
  Service& service_;
  std::uint64_t headers_ns_;
  std::uint64_t id_;
};

/// Cancels a request whose client may leave before, while or after infer() returns. Thread-safe.
class CancelOnce {
 public:
  /// The handle that infer() returned; may be null.
  void set(std::shared_ptr<Cancellation> handle) {
    {
      const std::lock_guard lock(mutex_);
      if (!cancelled_) {
        handle_ = std::move(handle);
        return;
      }
    }
    if (handle) handle->cancel();
  }

  [[nodiscard]] bool cancelled() {
    const std::lock_guard lock(mutex_);
    return cancelled_;
  }

  void cancel() {
    std::shared_ptr<Cancellation> handle;
    {
      const std::lock_guard lock(mutex_);
      cancelled_ = true;
      handle = std::move(handle_);
    }
    // Without the lock: the service may answer the request in here.
    if (handle) handle->cancel();
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<Cancellation> handle_;
  bool cancelled_ = false;
};

}  // namespace sluice::server::api
