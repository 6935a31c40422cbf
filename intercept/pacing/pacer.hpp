#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "intercept/driver/driver_query.hpp"
#include "intercept/driver/threads.hpp"
#include "intercept/pacing/durations.hpp"
#include "intercept/pacing/gpu_time.hpp"
#include "intercept/pacing/streams.hpp"
#include "intercept/slot/client_slot.hpp"
#include "intercept/slot/gate_memory.hpp"
#include "shm/policy.hpp"
#include "shm/trace_format.hpp"

namespace sluice::intercept {

/// Bounds how much of this client's work can be in front of a critical job: makes the sync points,
/// event groups and stream waits of its policy, on the launch's own stream.
class Pacer {
 public:
  /// `poller` calls collect_samples() when woken. `gpu_time`: whether the GPU time is estimated.
  Pacer(ClientSlot& client, GateMemory& memory, Streams& streams, Worker& poller, bool gpu_time)
      : client_(client),
        memory_(memory),
        streams_(streams),
        poller_(poller),
        gpu_time_(client, gpu_time) {}

  /// One launch's place in its stream. The launch keeps its number, because another thread may
  /// launch into the same stream before after() is called, and then no launch might end the group.
  /// It keeps its policy, because another policy may come into force before the launch ends.
  struct Place {
    /// In a pair of groups, from 1, so that no division is needed; 0 if it does not matter.
    std::uint32_t number = 0;
    LaunchDuration* sampled = nullptr;  ///< The duration that is sampled; null if none is.
    /// Launches of the client before a drawn launch that is sampled; 0 if none is.
    std::uint64_t launches_before = 0;
    bool marks_end = false;  ///< The GPU shall say when it has done the launch (Arrivals).
    shm::Policy policy;

    [[nodiscard]] std::size_t parity() const noexcept {
      return number > policy.spacing.count ? 1 : 0;
    }
    [[nodiscard]] bool begins_group() const noexcept {
      return number == 1 || number == policy.spacing.count + 1;
    }
    [[nodiscard]] bool ends_group() const noexcept {
      return number == policy.spacing.count || number == 2 * policy.spacing.count;
    }
  };

  /// Bracket each launch while ClientSlot::must_pace(). before() may wait on the driver; pass its
  /// result to after(). `named` is the stream as the calling thread names it. `held`: the launch
  /// was held on the host until now, by a policy that is no longer in force; then a wait is due in
  /// any case.
  void before(Entry entry, Stream& stream, CUstream named, const Work& work, Place& place,
              bool held = false) noexcept;
  void after(const Place& place, Stream& stream, CUstream named, CUresult launched) noexcept;

  /// Call for a drawn launch, last before the driver's call, under any policy: adds to the GPU time
  /// of the client, and may begin a sample. Then after() must follow. The launch stands for
  /// `launches`.
  void measure(Stream& stream, CUstream named, const Work& work, std::uint32_t launches,
               Place& place) noexcept;

  /// What a stream was given since its last wait, as the account of a device policy has it.
  struct Spent {
    std::uint64_t ns = 0;
    std::uint32_t account = 0;  ///< Stream::accounts
  };
  /// Bracket a call that waits for the work of the stream: what it was given before has run, so it
  /// cannot be in front of a critical job.
  [[nodiscard]] Spent spent(Stream& stream) noexcept;
  void has_run(Stream& stream, const Spent& spent) noexcept;
  /// After a call that has waited for all work of the context, if nothing was launched meanwhile.
  void all_has_run(CUcontext context) noexcept;

  [[nodiscard]] bool estimates_gpu_time() const noexcept { return gpu_time_.on(); }

  /// The learned durations of launches.
  [[nodiscard]] LaunchDurations& durations() noexcept { return durations_; }
  /// For the polling thread: collects samples. Returns whether any were under way. Then more will
  /// follow soon, and the polling thread should look again: waking it costs a launch 2 us.
  bool collect_samples();

  /// Call before the stream is destroyed, or after it was destroyed with its context (`gone`).
  void end(Stream& stream, bool gone) noexcept;

 private:
  struct Due {
    bool wait = false;
    LaunchDuration* duration = nullptr;
    bool others_ran = false;  ///< The account contains work of other streams.
  };
  // The parts of before(). They are inlined in pacer.cpp, because most of their time would be
  // calls.
  static std::uint32_t count(Stream& stream, shm::Spacing spacing) noexcept;
  [[nodiscard]] Due spend(Stream& stream, const Work& work, bool always,
                          std::uint64_t spacing_ns) noexcept;
  void add_to_account(Stream& stream, std::uint64_t ns, std::uint64_t spacing_ns,
                      Due& due) noexcept;
  void before_device(Entry entry, Stream& stream, CUstream named, const Work& work, Place& place,
                     bool held) noexcept;
  [[nodiscard]] bool begin_sample(Stream& stream, LaunchDuration* duration,
                                  CUstream named) noexcept;
  void note_known(bool known) noexcept;
  void tell_status(const LaunchDuration* duration, std::uint32_t ns, bool graph) noexcept;
  void wait_for_slack(const LaunchDuration* duration, bool graph, CUstream named,
                      std::uint64_t spacing_ns) noexcept;

  void bound_run_ahead(Stream& stream, const LaunchDuration* duration, CUstream named,
                       const shm::Policy& policy) noexcept;
  void add_sampled(Stream& stream) noexcept;
  [[nodiscard]] Stream* next_sampled() noexcept;
  void begin_group(Stream& stream, const Place& place) noexcept;
  static CUresult ask_group_end(Stream& stream, std::size_t parity, CUevent& event) noexcept;
  void end_group(Stream& stream, const Place& place, CUstream named) noexcept;
  void wait_for_all(Stream& stream, shm::TraceHold why, const shm::Policy& policy,
                    CUstream named) noexcept;
  template <class Query>
  Waited wait(Stream& stream, shm::TraceHold why, shm::Policy policy, Query query) noexcept;
  template <class Query>
  Waited ask_stuck(Stream& stream, Query query) noexcept;
  void no_longer_stuck(Stream& stream) noexcept;
  void put_wait(Entry entry, Stream& stream, CUstream named, bool begins_group) noexcept;
  [[nodiscard]] int arrivals_index(Stream& stream) noexcept;
  [[nodiscard]] bool note_work(Stream& stream, const LaunchDuration* duration, bool behind_wait,
                               bool graph, std::uint64_t spacing_ns) noexcept;
  void mark_end(Stream& stream, CUstream named) noexcept;
  void write_arrival(Stream& stream, CUstream named) noexcept;
  void write_off_idle(const Stream& own) noexcept;
  void empty_account(Stream& stream) noexcept;

  ClientSlot& client_;
  GateMemory& memory_;
  Streams& streams_;
  Worker& poller_;

  LaunchDurations durations_;
  GpuTime gpu_time_;
  std::atomic<std::uint64_t> run_ns_{0};  ///< At least the sum of all Stream::run_ns.
  std::atomic<std::uint64_t> written_off_ns_{0};
  std::atomic<std::uint32_t> known_in_a_row_{0};
  std::atomic<int> stuck_streams_{0};  ///< Streams with Stream::stuck.
  /// The streams that may have samples under way, linked by Stream::next_sampled.
  std::atomic<Stream*> sampled_{nullptr};
  std::mutex collecting_;        ///< Guards the members below. Never held during a driver call.
  Stream* collected_ = nullptr;  ///< Those of `sampled_` that this round has not looked at yet.
  std::optional<std::uint64_t> quiet_before_;
};

}  // namespace sluice::intercept
