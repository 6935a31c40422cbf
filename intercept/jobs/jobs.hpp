#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "intercept/client/client_slot.hpp"
#include "intercept/client/worker.hpp"
#include "intercept/jobs/prediction.hpp"
#include "intercept/pacing/streams.hpp"

namespace sluice::intercept {

/// Jobs of one client. The client is active from the first begin to the last end of overlapping
/// jobs; only those two touch the gates of others. Transparent jobs are found here: a job begins
/// with the first work given while idle, and ends when a synchronising call returns with nothing
/// outstanding, or when poll() sees the GPU work done. The jobs of a client of priority 0 hold
/// nobody, and are not polled: only a synchronising call ends them. Before a job that is predicted
/// the client is active already: the job finds the gates closed.
class Jobs {
 public:
  /// `poller` calls poll(), and `announcer` look_ahead(), when they are woken. `predict`: whether
  /// jobs that come regularly are to be expected.
  Jobs(ClientSlot& client, Worker& poller, Worker& announcer, bool predict) noexcept
      : client_(client), poller_(poller), announcer_(announcer), predict_(predict) {}

  /// Explicit begin and end. Calls must balance.
  void begin() noexcept;
  void end() noexcept;
  /// In the place of begin(): the gates must close for a job that is announced, and that is called
  /// off at `until_ns`. It begins at announced_begins(), or ends without having been one.
  void hold_for_announced(std::uint64_t until_ns) noexcept;
  /// The gates stay closed for announced jobs alone, the last of which is called off at `until_ns`.
  void none_has_begun(std::uint64_t until_ns) noexcept;
  void announced_begins() noexcept;

  /// Work is about to be given to the stream, and has been counted already.
  void touch(Stream& stream);

  /// A synchronous copy to the device is about to begin: a job begins, but no stream is busy.
  void touch_host_copy() noexcept;

  /// Around a synchronising call of the program, which another thread may cancel.
  class Synchronising {
   public:
    explicit Synchronising(Jobs& jobs) noexcept : jobs_(jobs), before_(jobs.client_.launches()) {
      jobs_.syncing_.enter();
    }
    /// The call has returned, and if it succeeded the work of the stream, or of a context, is done.
    /// Null for a stream without work of ours.
    void returned(CUresult result, const Stream* stream) noexcept;
    void returned(CUresult result, CUcontext context) noexcept;

   private:
    template <class Which>
    void finish(CUresult result, Which which) noexcept;
    Jobs& jobs_;
    std::uint64_t before_;
  };

  /// For the watcher: the priority was 0, so that nobody polled, and is not any more. Ends the
  /// transparent job, or it might hold others with nobody to see its end; the next work begins one.
  /// Makes no driver call and allocates nothing.
  void begin_anew() noexcept;

  /// For the polling thread. Ends the transparent job if its work is done.
  void poll();
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

  /// The stream has been or is about to be destroyed; the caller forbids queries meanwhile.
  void forget(const Stream& stream) noexcept;

 private:
  /// A busy stream, as the polling thread asks about it without a lock.
  struct Asked {
    const Stream* stream;
    CUcontext context;
    CUstream handle;
  };
  [[nodiscard]] static bool is_done(const Asked& asked) noexcept;
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
  [[nodiscard]] bool nothing_since(std::uint64_t before) const noexcept;
  [[nodiscard]] shm::Board& board() const noexcept { return client_.seat().board; }

  ClientSlot& client_;
  Worker& poller_;
  Worker& announcer_;
  bool predict_;
  /// Serialises begin and end, and guards what follows. No driver call that can block is made
  /// under it: launching threads take it.
  std::mutex mutex_;
  int open_ = 0;                ///< Overlapping jobs, the transparent one included.
  bool ahead_ = false;          ///< Active without a job, for one that is predicted.
  std::uint64_t began_ns_ = 0;  ///< Of the open job; 0: it has not begun, only been announced.
  Prediction prediction_;
  std::atomic<bool> transparent_{false};
  std::vector<Stream*> busy_;  ///< Given work since the transparent job began.
  std::uint64_t launches_at_last_poll_ = 0;
  /// Threads inside a synchronising call. Their return will end the job: no need to poll, and
  /// queries would only contend with them inside the driver.
  ThreadMarks syncing_;
};

}  // namespace sluice::intercept
