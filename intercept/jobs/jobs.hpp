#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "intercept/driver/driver.hpp"
#include "intercept/jobs/prediction.hpp"
#include "shm/board.hpp"

namespace sluice::intercept {

/// Set by the first explicit begin of the process: from then on jobs are what the program says.
extern constinit std::atomic<bool> g_explicit_jobs;

/// Set by the first announcement of the process: from then on none of its jobs is predicted.
extern constinit std::atomic<bool> g_announced_jobs;

/// Jobs of one client. The client is active from the first begin to the last end of overlapping
/// jobs; only those two touch the gates of others. Transparent jobs are found here: a job begins
/// with the first work given while idle, and ends when a synchronising call returns with nothing
/// outstanding, or when poll() sees the GPU work done. The jobs of a client of priority 0 hold
/// nobody, and are not polled: only a synchronising call ends them. Before a job that is predicted
/// the client is active already: the job finds the gates closed.
class Jobs {
 public:
  Jobs(shm::Board& board, int slot) noexcept : board_(board), slot_(slot) {}

  /// Explicit begin and end. Calls must balance.
  void begin() noexcept;
  void end() noexcept;
  /// In the place of begin(): the gates must close for a job that is announced, and that is called
  /// off at `until_ns`. It begins at announced_begins(), or ends without having been one.
  void hold_for_announced(std::uint64_t until_ns) noexcept;
  /// The gates stay closed for announced jobs alone, the last of which is called off at `until_ns`.
  void none_has_begun(std::uint64_t until_ns) noexcept;
  void announced_begins() noexcept;

  /// Work is about to be given to `stream`, and has been counted already. Costs two thread-local
  /// compares and one load while the same thread goes on with the same stream in the same job.
  void touch(CUstream stream) noexcept {
    const Last& last = t_last;
    if (last.jobs != this || last.stream != stream ||
        last.epoch != epoch_.load(std::memory_order_relaxed)) {
      touch_slow(stream);
    }
  }

  /// A synchronous copy to the device is about to begin: a job begins, but no stream is busy.
  void touch_host_copy() noexcept;

  /// After work for the calling thread's own default stream: no other thread can ask the driver
  /// about it, so an event behind the work is left for poll().
  void mark_per_thread() noexcept;

  /// Brackets a synchronising call of the program.
  [[nodiscard]] std::uint64_t before_sync() noexcept {
    syncing_.fetch_add(1, std::memory_order_relaxed);
    return launches();
  }
  void sync_returned() noexcept {
    syncing_.fetch_sub(1, std::memory_order_relaxed);
    board_.slots[static_cast<std::size_t>(slot_)].syncs.fetch_add(1, std::memory_order_relaxed);
  }
  void after_sync_context(std::uint64_t before, CUcontext context) noexcept;
  void after_sync(std::uint64_t before, CUstream stream) noexcept;

  /// For the watcher: the priority was 0, so that nobody polled, and is not any more. Ends the
  /// transparent job, or it might hold others with nobody to see its end; the next work begins one.
  /// Makes no driver call and allocates nothing.
  void begin_anew() noexcept;

  /// For the polling thread. Ends the transparent job if its work is done.
  void poll() noexcept;
  /// Whether a job runs whose end nobody will tell.
  [[nodiscard]] bool need_polling() const noexcept;

  struct Ahead {
    Prediction::Expected expected;
    bool closed;  ///< The gates are closed for it.
  };
  /// For the notice thread: the job that is predicted, if one is. Closes the gates `lead_ns` before
  /// it, and opens them when its time is over. `lead_ns` is 0 where nobody is to be held.
  [[nodiscard]] std::optional<Ahead> look_ahead(std::uint64_t now_ns,
                                                std::uint64_t lead_ns) noexcept;
  /// For the watcher: opens the gates when the time of the predicted job is over, should the notice
  /// thread be inside the driver.
  void lapse(std::uint64_t now_ns) noexcept;

  /// The stream, or a context (null: perhaps any) with all it holds, has been or is about to be
  /// destroyed; the caller forbids questions meanwhile.
  void forget(CUstream stream) noexcept;
  void forget_context(CUcontext context) noexcept;

 private:
  /// Work given to a stream since the job began.
  struct Busy {
    CUstream stream;
    const void* thread;  ///< Whose per-thread default stream it is; null for other streams.
    CUcontext context;
    std::uint64_t epoch;  ///< Of the last touch that came through touch_slow().
    CUevent marker;       ///< Behind the last work, for per-thread default streams; else null.
    bool marking;         ///< Its thread is about to record the marker.
  };
  /// What this thread did last: see touch().
  struct Last {
    const Jobs* jobs;
    CUstream stream;
    std::uint64_t epoch;
  };
  static constinit thread_local Last t_last;

  void touch_slow(CUstream stream) noexcept;
  /// Takes a stream off the list, and keeps its marker for the next one of its context.
  void put_away(const Busy& busy) noexcept;
  [[nodiscard]] static bool is_done(const Busy& busy) noexcept;
  [[nodiscard]] bool hold_others() const noexcept;
  void open_transparent() noexcept;
  void close_transparent() noexcept;
  void open_one(std::uint64_t until_ns = 0) noexcept;
  void open_explicit(std::uint64_t until_ns = 0) noexcept;
  void close_one() noexcept;
  void hold_below(std::uint64_t now_ns, std::uint64_t until_ns) noexcept;
  void release_below(std::uint64_t took_ns) noexcept;
  void call_off_late(std::uint64_t now_ns) noexcept;
  void say_until(std::uint64_t until_ns) noexcept;
  void learn_begin(std::uint64_t now_ns) noexcept;
  void show_predictions() noexcept;
  [[nodiscard]] bool nothing_since(std::uint64_t before) noexcept;
  [[nodiscard]] std::uint64_t launches() const noexcept;
  [[nodiscard]] Busy* find(CUstream stream) noexcept;

  shm::Board& board_;
  int slot_;
  /// Serialises begin and end, and guards what follows. No driver call that can block is made
  /// under it: launching threads take it.
  std::mutex mutex_;
  int open_ = 0;                ///< Overlapping jobs, the transparent one included.
  bool ahead_ = false;          ///< Active without a job, for one that is predicted.
  std::uint64_t began_ns_ = 0;  ///< Of the open job; 0: it has not begun, only been announced.
  Prediction prediction_;
  bool transparent_ = false;
  std::vector<Busy> busy_;
  std::vector<Busy> asked_;  ///< Of the polling thread alone.
  /// Events of past jobs, so that none is made while a job runs but the first time.
  std::vector<std::pair<CUcontext, CUevent>> spare_markers_;
  std::uint64_t launches_at_last_poll_ = 0;
  /// Threads inside a synchronising call. Their return will end the job: no need to poll, and
  /// questions would only contend with them inside the driver.
  std::atomic<int> syncing_{0};
  std::atomic<std::uint64_t> epoch_{1};  ///< Counts ends: what threads remember becomes void.
};

}  // namespace sluice::intercept
