#include "server/api/workers.hpp"

#include <string>
#include <system_error>
#include <utility>

namespace sluice::server::api {

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
}

Status Workers::post(std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  if (idle_ == jobs_.size()) {
    if (threads_.size() == kMostJobs) {
      return {Code::kResourceExhausted,
              std::to_string(kMostJobs) + " loads and unloads wait already"};
    }
    try {
      threads_.emplace_back([this] { work(); });
    } catch (const std::system_error& error) {
      return {Code::kResourceExhausted, std::string("no thread: ") + error.what()};
    }
    ++idle_;
  }
  jobs_.push_back(std::move(job));
  changed_.notify_one();
  return {};
}

void Workers::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    --idle_;
    lock.unlock();
    job();
    lock.lock();
    ++idle_;
  }
}

}  // namespace sluice::server::api
