#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace sluice::server::api {

/// What the server may ask of a connection.
class OpenConnection {
 public:
  OpenConnection() = default;
  OpenConnection(const OpenConnection&) = delete;
  OpenConnection& operator=(const OpenConnection&) = delete;
  virtual ~OpenConnection() = default;
  /// Ends the connection: after its response, or at once if `now`. Thread-safe.
  virtual void end(bool now) = 0;
};

/// The open connections, and the limits that they share. Thread-safe.
class HttpConnections {
 public:
  HttpConnections(std::size_t max_connections, std::size_t max_arriving_bytes)
      : max_connections_(max_connections), max_arriving_bytes_(max_arriving_bytes) {}

  /// The place of a connection, until its last member is destroyed: the server may end right after
  /// that.
  class Place {
   public:
    explicit Place(HttpConnections& all) : all_(all) {}
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place();
    void take(const std::shared_ptr<OpenConnection>& connection);

   private:
    HttpConnections& all_;
    bool taken_ = false;
  };

  [[nodiscard]] bool full() const;
  [[nodiscard]] std::vector<std::shared_ptr<OpenConnection>> all() const;
  /// Waits until no connection is open. False: the limit has passed.
  bool wait_for_none(std::optional<std::chrono::milliseconds> limit);

  /// Whether there is room for the bytes of a body that is about to arrive. If so, release() them
  /// when they have arrived.
  [[nodiscard]] bool reserve(std::size_t bytes);
  void release(std::size_t bytes) { arriving_ -= bytes; }

 private:
  const std::size_t max_connections_;
  const std::size_t max_arriving_bytes_;
  mutable std::mutex mutex_;
  std::condition_variable none_;
  std::vector<std::weak_ptr<OpenConnection>> connections_;
  std::size_t open_ = 0;
  std::atomic<std::size_t> arriving_ = 0;
};

}  // namespace sluice::server::api
