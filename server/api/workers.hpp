#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice::server::api {

/// Threads for the calls that block: loading and unloading a model. A protocol's own threads must
/// go on meanwhile.
class Workers {
 public:
  Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// Runs what was posted, then ends the threads.
  ~Workers();

  void post(std::function<void()> job);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool ending_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace sluice::server::api
