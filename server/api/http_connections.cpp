#include "server/api/http_connections.hpp"

#include <utility>

namespace sluice::server::api {

void HttpConnections::Place::take(const std::shared_ptr<OpenConnection>& connection) {
  const std::lock_guard lock(all_.mutex_);
  taken_ = true;
  ++all_.open_;
  std::erase_if(all_.connections_, [](const auto& entry) { return entry.expired(); });
  all_.connections_.push_back(connection);
}

HttpConnections::Place::~Place() {
  if (!taken_) return;
  const std::lock_guard lock(all_.mutex_);
  --all_.open_;
  if (all_.open_ == 0) all_.none_.notify_all();
}

bool HttpConnections::full() const {
  const std::lock_guard lock(mutex_);
  return open_ >= max_connections_;
}

std::vector<std::shared_ptr<OpenConnection>> HttpConnections::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<OpenConnection>> living;
  for (const auto& entry : connections_) {
    if (auto connection = entry.lock()) living.push_back(std::move(connection));
  }
  return living;
}

bool HttpConnections::wait_for_none(std::optional<std::chrono::milliseconds> limit) {
  std::unique_lock lock(mutex_);
  const auto none = [this] { return open_ == 0; };
  if (limit) return none_.wait_for(lock, *limit, none);
  none_.wait(lock, none);
  return true;
}

bool HttpConnections::reserve(std::size_t bytes) {
  const std::size_t before = arriving_.fetch_add(bytes);
  if (before + bytes <= max_arriving_bytes_) return true;
  arriving_ -= bytes;
  return false;
}

}  // namespace sluice::server::api
