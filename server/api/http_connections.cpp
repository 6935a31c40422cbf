#include "server/api/http_connections.hpp"

#include <utility>

namespace sluice::server::api {

void HttpConnections::Place::take(const std::shared_ptr<OpenConnection>& connection) {
  const std::lock_guard lock(all_.mutex_);
  state_ = State::kBusy;
  connection_ = connection;
  ++all_.open_;
  std::erase_if(all_.connections_, [](const auto& entry) { return entry.expired(); });
  all_.connections_.push_back(connection);
}

HttpConnections::Place::~Place() {
  if (state_ == State::kFree) return;
  const std::lock_guard lock(all_.mutex_);
  if (state_ == State::kWaiting) all_.waiting_.erase(turn_);
  if (state_ == State::kGivenUp) --all_.given_up_;
  --all_.open_;
  if (all_.open_ == 0) all_.none_.notify_all();
}

void HttpConnections::Place::wait() {
  const std::lock_guard lock(all_.mutex_);
  if (state_ != State::kBusy) return;
  state_ = State::kWaiting;
  since_ = all_.last_busy_ = std::chrono::steady_clock::now();
  turn_ = all_.waiting_.insert(all_.waiting_.end(), this);
}

bool HttpConnections::Place::go_on() {
  const std::lock_guard lock(all_.mutex_);
  if (state_ == State::kWaiting) {
    state_ = State::kBusy;
    all_.waiting_.erase(turn_);
  }
  return state_ == State::kBusy;
}

bool HttpConnections::make_place() {
  {
    const std::lock_guard lock(mutex_);
    if (open_ - given_up_ < max_connections_) return true;
  }
  return end_longest_waiting(spare_after_);
}

bool HttpConnections::quiet(std::chrono::milliseconds least) const {
  const std::lock_guard lock(mutex_);
  if (open_ == 0) return true;
  return open_ == waiting_.size() + given_up_ &&
         std::chrono::steady_clock::now() - last_busy_ >= least;
}

bool HttpConnections::end_longest_waiting(std::chrono::milliseconds least) {
  std::shared_ptr<OpenConnection> ended;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) return false;
    Place& longest = *waiting_.front();
    if (std::chrono::steady_clock::now() - longest.since_ < least) return false;
    waiting_.pop_front();
    longest.state_ = Place::State::kGivenUp;
    ++given_up_;
    ended = longest.connection_.lock();
  }
  // Without the lock, which the end of a connection takes.
  if (ended) ended->end(true);
  return true;
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
