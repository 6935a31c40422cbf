#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "server/service/service.hpp"

namespace sluice::server::api {

/// Threads for the calls that block: loading and unloading a model. A protocol's own threads must
/// go on meanwhile. No job waits for another: an unload may free the memory that loads wait for.
class Workers {
 public:
  static constexpr std::size_t kMostJobs = 64;

  Workers() = default;
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// Runs what was posted, then ends the threads.
  ~Workers();

  /// kResourceExhausted, without running the job, if kMostJobs run already.
  [[nodiscard]] Status post(std::function<void()> job);

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  ///< Each has an idle thread.
  std::size_t idle_ = 0;                    ///< Threads without a job.
  bool ending_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace sluice::server::api
