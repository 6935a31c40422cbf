#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/api/access.hpp"

namespace sluice::server::api {

/// Of a server and its connections.
struct HttpOptions {
  std::string address = "127.0.0.1";  ///< See resolve_address().
  std::uint16_t port = 0;             ///< 0: any free one.
  /// Of a body, also when inflated. A larger one is refused with 413.
  std::size_t max_request_bytes = std::size_t{64} << 20;
  /// Of all bodies that have not arrived completely. A request beyond that is refused with 429,
  /// like one beyond Service::memory().
  std::size_t max_arriving_bytes = std::size_t{512} << 20;
  std::size_t max_connections = 1024;
  /// A connection that has waited for so long makes way for a new one. A client between two
  /// requests is not cut: it could not know whether its next request has arrived.
  std::chrono::milliseconds spare_after{5000};
  std::size_t threads = 4;  ///< Each serves its share of the connections.
  /// For the headers of a request, and for a body or a response that makes no progress.
  std::chrono::milliseconds progress_timeout{30'000};
  /// For a whole body. A client that sends gets a second more for each 64 KiB that has arrived, so
  /// that a large body may take its time, and one that drips has its place not for long.
  std::chrono::milliseconds body_timeout{30'000};
  /// For a connection between two requests.
  std::chrono::milliseconds idle_timeout{600'000};
  Access access = {};
  Tls tls = {};
};

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

/// The open connections, and the limits that they share. Idle clients cannot keep others out: for a
/// new connection, the one that has waited longest for a request is ended, unless it is busy with
/// one request after another. Thread-safe.
class HttpConnections {
 public:
  explicit HttpConnections(const HttpOptions& options)
      : max_connections_(options.max_connections),
        max_arriving_bytes_(options.max_arriving_bytes),
        spare_after_(options.spare_after) {}

  /// The place of a connection, until its last member is destroyed: the server may end right after
  /// that.
  class Place {
   public:
    explicit Place(HttpConnections& all) : all_(all) {}
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;
    ~Place();
    void take(const std::shared_ptr<OpenConnection>& connection);
    /// From now on the connection has no request, and may be ended for a new one.
    void wait();
    /// A request has come. False: the connection is being ended for a new one, and must not answer.
    [[nodiscard]] bool go_on();

   private:
    friend HttpConnections;
    enum class State : std::uint8_t { kFree, kBusy, kWaiting, kGivenUp };

    HttpConnections& all_;
    State state_ = State::kFree;
    std::chrono::steady_clock::time_point since_;  ///< kWaiting.
    std::weak_ptr<OpenConnection> connection_;
    std::list<Place*>::iterator turn_;  ///< kWaiting: in waiting_.
  };

  /// Whether there is a place for one more connection. If none is free, ends the connection that
  /// has waited longest, and for HttpOptions::spare_after. False: there is none.
  [[nodiscard]] bool make_place();
  /// Ends the connection that has waited longest, if it has waited for so long. False: there is
  /// none.
  bool end_longest_waiting(std::chrono::milliseconds least = std::chrono::milliseconds(0));
  [[nodiscard]] std::vector<std::shared_ptr<OpenConnection>> all() const;
  /// Waits until no connection is open. False: the limit has passed.
  bool wait_for_none(std::optional<std::chrono::milliseconds> limit);

  /// From now on, each response is the last one of its connection.
  void leave() { leaving_ = true; }
  [[nodiscard]] bool leaving() const { return leaving_; }
  /// Whether no connection is open, or none has had a request for so long.
  [[nodiscard]] bool quiet(std::chrono::milliseconds least) const;

  /// Whether there is room for the bytes of a body that is about to arrive. If so, release() them
  /// when they have arrived.
  [[nodiscard]] bool reserve(std::size_t bytes);
  void release(std::size_t bytes) { arriving_ -= bytes; }

 private:
  const std::size_t max_connections_;
  const std::size_t max_arriving_bytes_;
  const std::chrono::milliseconds spare_after_;
  std::atomic<bool> leaving_ = false;
  std::chrono::steady_clock::time_point last_busy_;
  mutable std::mutex mutex_;
  std::condition_variable none_;
  std::vector<std::weak_ptr<OpenConnection>> connections_;
  std::list<Place*> waiting_;  ///< The longest waiting first.
  std::size_t open_ = 0;
  std::size_t given_up_ = 0;  ///< Of the open ones.
  std::atomic<std::size_t> arriving_ = 0;
};

}  // namespace sluice::server::api
