#include "server/api/time_limits.hpp"

namespace sluice::server::api {

void TimeLimits::Limit::start(grpc::ServerContextBase& context, std::chrono::milliseconds limit) {
  const auto due = Clock::now() + limit;
  const std::lock_guard lock(all_.mutex_);
  context_ = &context;
  running_ = all_.running_.emplace(due, this);
  if (due < all_.looks_at_) all_.changed_.notify_one();
}

void TimeLimits::Limit::stop() {
  const std::lock_guard lock(all_.mutex_);
  if (running_) all_.running_.erase(*running_);
  running_.reset();
}

TimeLimits::TimeLimits() : thread_([this](const std::stop_token& stop) { watch(stop); }) {}

void TimeLimits::watch(const std::stop_token& stop) {
  constexpr std::chrono::hours kLongest{1};
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const auto now = Clock::now();
    while (!running_.empty() && running_.begin()->first <= now) {
      Limit& limit = *running_.begin()->second;
      running_.erase(running_.begin());
      limit.running_.reset();
      limit.context_->TryCancel();
    }
    looks_at_ = running_.empty() ? now + kLongest : running_.begin()->first;
    changed_.wait_until(lock, stop, looks_at_, [this] {
      return !running_.empty() && running_.begin()->first < looks_at_;
    });
  }
}

}  // namespace sluice::server::api
