#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "intercept/driver/threads.hpp"
#include "intercept/jobs/budget.hpp"
#include "intercept/jobs/followers.hpp"
#include "intercept/jobs/prediction.hpp"
#include "intercept/jobs/spending.hpp"
#include "intercept/jobs/steps.hpp"
#include "intercept/jobs/target_law.hpp"
#include "intercept/jobs/trials.hpp"
#include "intercept/jobs/waits.hpp"
#include "intercept/pacing/streams.hpp"
#include "intercept/slot/client_slot.hpp"
#include "intercept/slot/quiet.hpp"

namespace sluice::intercept {

/// The jobs of one client. The client is active from the first begin to the last end of overlapping
/// jobs; only those two change the gates of others.
///
/// Transparent jobs are found here. One begins with the first work that is given while the client
/// is idle. It ends when a synchronising call returns with nothing outstanding, or when poll() sees
/// that the GPU work is done. Other calls that tell the program of work that is done, of
/// an event or a copy to the host, make poll() look at once. Jobs at priority 0 hold nobody.
/// Unless the client takes turns, poll() looks for their ends seldom, and only if the program waits
/// by such calls; then a job ended when the last one returned.
///
/// A stream that makes no progress for max_hold keeps no job open until it makes progress again: it
/// may wait for the program itself. 2 s are enough if other work comes and ends meanwhile.
///
/// A job that does not end has steps, and its gates open in them for a window now and then
/// (steps.hpp).
///
/// The client is active already before a predicted job, and between two jobs of one request, so
/// that the job finds the gates closed.
/// With a target the client becomes active later than its job, or not at all.
class Jobs {
 public:
  /// `poller` must call poll() when woken, and `announcer` look_ahead(). `predict`: whether regular
  /// jobs are predicted.
  Jobs(ClientSlot& client, Worker& poller, Worker& announcer, bool predict) noexcept
      : client_(client),
        poller_(poller),
        announcer_(announcer),
        predict_(predict),
        law_(Quiet::kOutsideLookNs),
        quiet_(client.time_scale()),
        trials_(client),
        followers_(client.time_scale()),
        steps_(client),
        budget_(client.time_scale()) {
    take_give();
  }

  /// Explicit begin and end. Calls must balance.
  void begin() noexcept;
  void end() noexcept;
  /// Instead of begin(): closes the gates for an announced job that lapses at `until_ns`. The job
  /// begins at announced_begins(), or end() comes without a job.
  void hold_for_announced(std::uint64_t until_ns) noexcept;
  /// An announced job comes into one that runs: closes the gates if they are still open, unless the
  /// target decides that.
  void close_now() noexcept;
  /// The gates stay closed only for announced jobs that have not begun; the last of them lapses at
  /// `until_ns`.
  void none_has_begun(std::uint64_t until_ns) noexcept;
  void announced_begins() noexcept;

  /// Call before work is given to the stream, and after the work was counted. `kind`: names the
  /// work, in case that a job begins with it; 0: nothing is known of it.
  void touch(Stream& stream, std::uint64_t kind = 0) noexcept;

  /// Call before a synchronous copy to the device: a job begins, but no stream becomes busy.
  void touch_host_copy() noexcept;

  /// A call that waits for the GPU.
  using Wait = Waits::Wait;

  /// Brackets a synchronising call of the program. It has no destructor, because another thread may
  /// cancel the call.
  class Synchronising {
   public:
    explicit Synchronising(Jobs& jobs) noexcept : jobs_(jobs), before_(jobs.client_.launches()) {
      jobs_.syncing_.enter();
      wait_ = jobs_.wait_begins();
    }
    /// Call when the call has returned. If it succeeded, the work of the stream or of the context
    /// is done. `stream` is null if it has no record.
    void returned(CUresult result, Stream* stream) noexcept;
    void returned(CUresult result, CUcontext context) noexcept;

   private:
    template <class PutAway, class Covers>
    void finish(CUresult result, PutAway put_away, Covers covers) noexcept;
    Jobs& jobs_;
    std::uint64_t before_;
    Wait wait_;
  };

  /// Whether waits for the GPU are counted.
  [[nodiscard]] bool waits_matter() const noexcept;
  /// Bracket a call that waits for work and ends no job itself. `surely`: it may close the gates.
  /// A call that only may wait counts if it took long.
  [[nodiscard]] Wait wait_begins(bool surely = true) noexcept {
    return waits_matter() ? begin_wait(surely) : Wait{};
  }
  void wait_returned(const Wait& wait, CUresult result, bool surely = true) noexcept;
  /// The time of all jobs: in waits for the GPU, and the rest.
  [[nodiscard]] Waits::Sums wait_sums() noexcept;

  /// For the watcher, in each tick: since when a thread has been in the same synchronising call; 0
  /// if none is in one.
  [[nodiscard]] std::uint64_t synchronising_since(std::uint64_t now_ns) noexcept {
    return syncing_.inside_since(now_ns);
  }

  /// For the watcher: the priority was 0 and is not any more. Ends the transparent job, which was
  /// not polled and might otherwise hold others without an end; the next work begins a new one.
  /// Makes no driver call and allocates nothing.
  void begin_anew() noexcept;

  /// For the polling thread: ends the transparent job if its work is done. `hinted`: the program
  /// has just learned that work is done, so it is worth a look although it was launching.
  void poll(bool hinted = false);
  /// A wait for work has returned, in a job that holds nobody.
  void unheld_wait_returned() noexcept;

  /// Whether a job runs whose end only poll() can find.
  [[nodiscard]] bool need_polling() const noexcept;
  /// Whether there is one that holds nobody, so that it matters little when poll() looks.
  [[nodiscard]] bool need_slow_polling() const noexcept;
  /// For the polling thread: whether a job that woke it has begun since the last call. The job may
  /// be over.
  [[nodiscard]] bool has_begun() noexcept { return began_.exchange(false); }

  /// For the watcher: the target that the board asks for. Allocates nothing.
  void take_target() noexcept;
  /// For the watcher: what the board says that the client gives.
  void take_give() noexcept;
  /// For the announcing thread, and for the watcher in case that thread is blocked in the driver:
  /// closes the gates of a job with a target in time. Returns when to look again.
  std::uint64_t look_at_target(std::uint64_t now_ns) noexcept;
  /// Whether the next job begins with open gates, so that nothing needs to be done before it.
  [[nodiscard]] bool may_begin_open() noexcept;

  struct Ahead {
    Prediction::Expected expected;
    bool closed;  ///< The gates are closed for this job.
  };
  /// For the announcing thread: the predicted job, if there is one. Closes the gates `lead_ns`
  /// before it, and opens them when it lapses. `lead_ns` is 0 if nobody is to be held.
  [[nodiscard]] std::optional<Ahead> look_ahead(std::uint64_t now_ns,
                                                std::uint64_t lead_ns) noexcept;
  /// For the watcher: opens the gates when the predicted job lapses, in case the announcing thread
  /// is blocked in the driver.
  void lapse(std::uint64_t now_ns) noexcept;

  /// For a stream that is about to end. The caller holds a QueryBan.
  void forget(Stream& stream) noexcept;

 private:
  void end_if_done(bool by_wait, std::uint64_t launches) noexcept;
  void look_back();
  [[nodiscard]] bool may_ask(bool hinted) noexcept;
  /// A copy of a busy stream's data, for queries without a lock.
  struct Asked {
    explicit Asked(Stream& of) noexcept : stream(&of), context(of.context), handle(of.key.handle) {}
    Stream* stream;
    CUcontext context;
    CUstream handle;
  };
  enum class Answer : std::uint8_t {
    kDone,
    kNotDone,
    kCaptures,  ///< The stream captures, so nothing was asked.
    kNone,      ///< The driver must not be asked now.
  };
  [[nodiscard]] Answer ask(const Asked& asked) noexcept;
  // stalled_streams.cpp
  void look_at_stalled();
  void show_stalled() noexcept;
  void note_progress_time() noexcept;
  std::uint64_t quiet_ns(Stream& stream) const noexcept;
  [[nodiscard]] bool is_quiet(Stream& stream) const noexcept;
  void outlives(Stream& stream) noexcept;
  [[nodiscard]] bool is_stalled(Stream& stream) const noexcept;
  void put_aside(Stream& stream) noexcept;
  void count_again(Stream& stream) noexcept;
  [[nodiscard]] bool stays_stalled(Stream& stream) noexcept;
  [[nodiscard]] bool knows(const Asked& asked) const noexcept;
  [[nodiscard]] bool hold_others() const noexcept;
  [[nodiscard]] bool ends_matter() const noexcept;
  void open_transparent(std::uint64_t kind = 0) noexcept;
  void close_transparent(bool by_wait = false, std::uint64_t at_ns = 0) noexcept;
  void open_one(std::uint64_t until_ns = 0, std::uint64_t kind = 0) noexcept;
  void open_explicit(std::uint64_t until_ns = 0) noexcept;
  void close_one(bool by_wait = false, std::uint64_t at_ns = 0) noexcept;
  void hold_below(std::uint64_t now_ns, std::uint64_t until_ns) noexcept;
  void release_below(std::uint64_t now_ns, std::uint64_t took_ns, bool stay = false) noexcept;
  void close_gates(std::uint64_t now_ns) noexcept;
  [[nodiscard]] bool may_stay_closed(bool by_wait, std::uint64_t now_ns) noexcept;
  void stay_closed(std::uint64_t now_ns) noexcept;
  void end_between(std::uint64_t now_ns) noexcept;
  void open_again() noexcept;
  void open_in_job() noexcept;
  void note_begin(std::uint64_t now_ns, std::uint64_t until_ns) noexcept;
  void end_open(std::uint64_t now_ns) noexcept;
  void close_open_job(std::uint64_t now_ns) noexcept;
  void close_without_trial() noexcept;
  bool must_close(std::uint64_t now_ns, bool closed, std::uint64_t kind) noexcept;
  [[nodiscard]] bool holds_for_reference() const noexcept;
  [[nodiscard]] bool was_alone(std::uint64_t now_ns) noexcept;
  Wait begin_wait(bool surely) noexcept;
  void count_wait(const Wait& wait, std::uint64_t now_ns) noexcept;
  void end_step(const Wait& wait, std::uint64_t now_ns) noexcept;
  void give_window(std::uint64_t now_ns, std::uint64_t until_ns) noexcept;
  bool open_gates(std::uint64_t now_ns) noexcept;
  void close_window(std::uint64_t now_ns) noexcept;
  void add_open(std::uint64_t now_ns) noexcept;
  [[nodiscard]] static shm::TraceJob kind_of_job() noexcept;
  void tell_budget(std::uint64_t now_ns) noexcept;
  [[nodiscard]] bool gives() const noexcept { return spending_.part() > 0; }
  void settle_item(std::uint64_t now_ns, std::uint64_t took_ns) noexcept;
  void share_out() noexcept;
  void show_given() noexcept;
  void show_waits() noexcept;
  [[nodiscard]] std::uint64_t budget_pays(bool at_begin, std::uint64_t now_ns) noexcept;
  bool begin_in_window(bool gates_are_closed, std::uint64_t now_ns) noexcept;
  void window_in_item(bool at_begin, std::uint64_t now_ns) noexcept;
  void no_sample() noexcept;
  void prepare_window(std::uint64_t now_ns) noexcept;
  void look_at_budget(std::uint64_t now_ns) noexcept;
  [[nodiscard]] bool has_target() const noexcept;
  [[nodiscard]] bool needs_early(std::uint64_t now_ns) noexcept;
  void show_target(std::optional<bool> in_time) noexcept;
  void call_off_late(std::uint64_t now_ns) noexcept;
  void begin_held() noexcept;
  void say_until(std::uint64_t until_ns) noexcept;
  void learn_begin(std::uint64_t now_ns) noexcept;
  void show_predictions() noexcept;
  [[nodiscard]] bool nothing_since(std::uint64_t before, bool in_order) const noexcept;
  [[nodiscard]] std::uint64_t end_by_wait(std::uint64_t launches) const noexcept;

  ClientSlot& client_;
  Worker& poller_;
  Worker& announcer_;
  bool predict_;
  /// Serialises begin and end, and guards the members below. Never held during a driver call that
  /// can block, because launching threads take it.
  std::mutex mutex_;
  int open_ = 0;                ///< Number of overlapping jobs, including the transparent one.
  bool ahead_ = false;          ///< Active without a job, because one is predicted.
  bool between_ = false;        ///< Active without a job, because the next one comes at once.
  bool unheeded_ = false;       ///< The announcing thread does nothing for the predicted job.
  std::uint64_t began_ns_ = 0;  ///< Begin of the open job; 0 if it was announced and has not begun.
  std::uint64_t closed_ns_ = 0;  ///< When the gates closed for the open job; 0: they are open.
  std::uint64_t window_ns_ = 0;  ///< Since when they are open again, for a window; 0: no window.
  Waits waits_;
  Prediction prediction_;
  TargetLaw law_;
  Quiet quiet_;  ///< Of the open job, for a target.
  Trials trials_;
  Followers followers_;
  Steps steps_;
  Budget budget_;
  Spending spending_;
  bool give_binds_ = false;                    ///< Also with a target.
  std::uint64_t items_ = 0;                    ///< Jobs and steps that ended.
  std::uint64_t kind_ = 0;                     ///< Of the open job.
  std::uint64_t window_until_ns_ = 0;          ///< Of the last window.
  bool budget_window_ = false;                 ///< The budget pays for it. It may outlast its job.
  std::uint64_t look_ns_ = TargetLaw::kNever;  ///< When look_at_target() has something to do.
  std::uint64_t launches_at_begin_ = 0;        ///< Of the open job.
  std::uint64_t number_ = 0;                   ///< Of the open job, from 1; for the trace.
  std::atomic<bool> transparent_{false};
  std::atomic<bool> began_{false};  ///< See has_begun().
  bool counted_ = false;            ///< In Process::open_jobs.
  StreamList busy_;  ///< Streams that were given work since the transparent job began.
  std::uint64_t launches_at_last_poll_ = 0;
  // Of a job that holds nobody.
  std::atomic<bool> waited_{false};                   ///< The program has waited for work in it.
  std::atomic<std::uint64_t> returned_ns_{0};         ///< When the last such wait returned,
  std::atomic<std::uint64_t> launches_at_return_{0};  ///< and the launches until then.
  static constexpr int kLooks = 8;
  /// Streams with work that have made no progress for max_hold. They keep no job open until they
  /// make some.
  StreamList stalled_;
  std::atomic<bool> any_stalled_{false};
  bool said_stalled_ = false;
  std::uint64_t ended_at_launches_ = 0;  ///< All but quiet streams were done after so many.
  std::uint64_t polled_ns_ = 0;
  std::uint64_t asked_ns_ = 0;  ///< When poll() last queried streams.
  std::uint64_t ran_ns_ = 0;    ///< The time in which streams could make progress.
  bool was_open_ = false;       ///< The gate, at the last poll.
  StreamList ended_;    ///< Streams that were busy in this transparent job, or in the last one.
  int looks_left_ = 0;  ///< Times that look_back() still queries them.
  std::uint64_t launches_at_end_ = 0;
  /// Threads inside a synchronising call. The return of the call will end the job, so there is no
  /// need to poll, and queries would only compete with the call inside the driver. A call that
  /// takes long may wait for a stalled stream.
  ThreadMarks syncing_;
};

}  // namespace sluice::intercept
