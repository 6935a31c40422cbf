#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace sluice::server::api {

/// Threads that inflate, parse and encode large bodies. The threads that serve connections never
/// work for long, so probes and small calls do not wait for the large ones of others. Thread-safe.
class CodecPool {
 public:
  /// Work of this many bytes of JSON takes a millisecond or two: a job for the pool.
  static constexpr std::size_t kLarge = std::size_t{64} << 10;
  /// Jobs of this size leave one thread to the others.
  static constexpr std::size_t kHuge = std::size_t{1} << 20;

  explicit CodecPool(unsigned threads = default_threads());
  CodecPool(const CodecPool&) = delete;
  CodecPool& operator=(const CodecPool&) = delete;
  /// Runs what was posted, then ends the threads.
  ~CodecPool() { end(); }

  /// Runs the job on a thread of the pool. `work`: its size, as that of JSON. A smaller job
  /// overtakes a larger one until jobs of as many bytes as the larger one has have begun in
  /// between, so a large job waits, but not indefinitely.
  void post(std::size_t work, std::function<void()> job);
  /// Runs what was posted, then ends the threads. No job may be posted from now on.
  void end();

  /// The size of a message whose raw tensors are not looked at, only passed on or copied.
  [[nodiscard]] static constexpr std::size_t work_of(std::size_t parsed, std::size_t raw) {
    constexpr std::size_t kCopiedPerParsed = 64;
    return parsed + raw / kCopiedPerParsed;
  }

 private:
  struct Job {
    std::size_t work;
    std::function<void()> run;
  };

  static unsigned default_threads();
  void serve();
  /// The job to run next; jobs_.end() if there is none. With the mutex.
  [[nodiscard]] std::multimap<std::uint64_t, Job>::iterator next();

  const unsigned most_huge_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<std::uint64_t, Job> jobs_;  ///< By `begun_` at their arrival, plus their work.
  std::uint64_t begun_ = 0;                 ///< The work of all jobs that have begun.
  unsigned huge_ = 0;                       ///< Such jobs that run.
  bool ending_ = false;
  std::vector<std::jthread> threads_;
};

}  // namespace sluice::server::api
