#pragma once
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "server/models/config_file.hpp"

namespace sluice::server {

/// Announces jobs to the gates of each GPU from the headers of requests, and brackets its busy
/// periods as jobs. Every id of headers() ends in forget() or begin_busy(). `gpu`: an index, or
/// kNoGpu, which has no gates. Thread-safe.
class Announcer {
 public:
  /// An announcement with less notice than this is of no use: the context switch and the check
  /// before it take as long.
  static constexpr std::uint64_t kLeastNs = 150'000;

  /// announce: false announces nothing. jobs: false begins no jobs either, so that the gate never
  /// closes.
  explicit Announcer(bool announce = true, bool jobs = true)
      : announce_(announce && jobs), jobs_(jobs) {}

  /// Headers have arrived: announces a job if the GPU is idle and the notice is long enough.
  [[nodiscard]] std::uint64_t headers(int gpu, const std::string& model, std::uint64_t bytes,
                                      std::uint64_t now_ns);
  void forget(std::uint64_t id);

  /// The request of these headers goes to this GPU. If it was announced on another one, it is
  /// called off there: nobody else may come for a while.
  void goes_to(std::uint64_t id, int gpu);
  /// Busy periods begin with the first step on an idle GPU, which passes the id of its request (or
  /// 0), and end when the queue is empty. As goes_to().
  void begin_busy(int gpu, std::uint64_t id, std::uint64_t now_ns);
  void end_busy(int gpu);

  /// The notice that the gate was given; 0: none.
  [[nodiscard]] std::uint64_t announced_ns(std::uint64_t id) const;

 private:
  struct Entry {
    std::string kind;
    int gpu = kNoGpu;
    std::uint64_t headers_ns = 0;
    std::uint64_t job = 0;           ///< Of sluice_job_announce_on(); 0: not announced.
    std::uint64_t announced_ns = 0;  ///< The notice that was given.
  };
  [[nodiscard]] Entry take(std::uint64_t id);
  static void call_off(Entry& entry);

  const bool announce_;
  const bool jobs_;
  mutable std::mutex mutex_;
  std::uint64_t next_id_ = 1;
  std::map<std::uint64_t, Entry> entries_;
  std::map<std::string, double> notice_ns_;  ///< From headers to begin, by kind of request.
  std::map<int, std::uint64_t> busy_;        ///< The job of each GPU that is busy; 0: none.
};

}  // namespace sluice::server
