#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/job_times.hpp"
#include "shm/memory_line.hpp"
#include "shm/robust_mutex.hpp"
#include "shm/step_times.hpp"
#include "shm/turn_line.hpp"

/// The board: the one piece of memory that the processes of a session share. The board is plain
/// fixed-width data with a stated layout. gates.hpp and README.md say which process may write what.
/// A *reader* is a client that can only read the board. What it has to say as the owner of a slot,
/// it reports to the node service, which writes for it (report.hpp).
namespace sluice::shm {

inline constexpr std::uint64_t kBoardMagic = 0x4452'4f42'4543'4c53;  // "SLCEBORD"
inline constexpr std::uint32_t kLayoutVersion = 13;

inline constexpr int kSlots = 63;          ///< Bit 63 of a gate belongs to the controller.
inline constexpr int kControllerBit = 63;  ///< The controller holds a client with this bit.
inline constexpr int kMaxDevices = 32;
/// Driver entries with counters of their own: the lines of launch_entries.def, and spare ones.
inline constexpr int kMaxEntries = 16;
/// Launching threads of a client that count their gated launches each in a word of its own.
inline constexpr std::size_t kLaunchStripes = 8;
inline constexpr std::size_t kLine = 128;
inline constexpr std::size_t kNameSize = 64;    ///< Size of a client's name, with its final NUL.
inline constexpr std::size_t kLabelSize = 104;  ///< Size of a client's labels, with the final NUL.

/// The controller beats every 20 ms. After 150 ms without a beat, status output calls it silent. No
/// client looks at the beat.
inline constexpr std::uint64_t kHeartbeatPeriodNs = 20'000'000;
inline constexpr std::uint64_t kHeartbeatLostNs = 150'000'000;
inline constexpr std::uint64_t kDefaultMaxHoldNs = 10'000'000'000;

/// Slot::slack_ns while no job is announced. The GPU compares signed numbers.
inline constexpr std::uint64_t kUnlimitedSlack = 0x7fff'ffff'ffff'ffff;

enum class SlotState : std::uint8_t {
  kFree,      ///< Belongs to nobody. The controller may give the slot out.
  kReserved,  ///< Given to a process that has not mapped the board yet.
  kLive,      ///< The client obeys its gate, and its jobs close lower-priority gates.
  kLeaving,   ///< The process is exiting: the gate stays open, and jobs are over.
  kDead,      ///< The process was found dead. The slot is freed when the kernel has removed the
              ///< process.
};

/// The identity of a slot, packed into one word so that one load reads a consistent value.
struct SlotInfo {
  SlotState state = SlotState::kFree;
  std::uint8_t priority = 0;
  std::uint8_t device = 0;       ///< Index into Board::devices.
  std::uint32_t generation = 0;  ///< Counts the processes that have had the slot.

  friend bool operator==(const SlotInfo&, const SlotInfo&) = default;

  [[nodiscard]] constexpr std::uint64_t pack() const noexcept {
    return static_cast<std::uint64_t>(state) | (std::uint64_t{priority} << 8U) |
           (std::uint64_t{device} << 16U) | (std::uint64_t{generation} << 32U);
  }
  [[nodiscard]] static constexpr SlotInfo unpack(std::uint64_t word) noexcept {
    return {static_cast<SlotState>(word & 0xffU), static_cast<std::uint8_t>(word >> 8U),
            static_cast<std::uint8_t>(word >> 16U), static_cast<std::uint32_t>(word >> 32U)};
  }
};

/// Counters of one driver entry. Launches = gated + captured + bypassed.
enum class Count : std::uint8_t {
  kGated,     ///< Passed the gate under a policy, open or closed.
  kCaptured,  ///< Recorded into a graph: no GPU work yet.
  // Bypassed: sent to the driver without passing the gate.
  kBypassPolicyNone,       ///< The client's policy is none.
  kBypassUnattached,       ///< The client had no slot yet.
  kBypassRefusedWait,      ///< Under device: the driver refused the wait that was due.
  kLaunchKinds,            ///< Number of counters above; they add up to the launches.
  kWaited = kLaunchKinds,  ///< Held on the host, or preceded by a stream wait.
  kHeldNs,                 ///< Time for which launching threads were held on the host.
  kSize,
};

/// Why a client has the time slice that it has, for status output (docs/reference/slices.md).
enum class SliceState : std::uint32_t {
  kUnknown,    ///< Nothing was decided yet.
  kDriver,     ///< The driver's: no client of another priority lives on the device.
  kShort,      ///< Short, so that a client above waits for a slice at most.
  kLong,       ///< So long that a job is not interrupted.
  kLearning,   ///< The driver's: too little is known of the clients above.
  kHostBound,  ///< The driver's: a client above is bound by its host, and would be late more often.
  kSeveral,    ///< The driver's: several clients below are busy, and would pay for each switch.
  kOutside,    ///< The driver's: programs outside Sluice use the device, and may be busy.
  kOff,        ///< The driver's: the user said so.
  kNoGroup,    ///< The process has no channel group of its own (MPS).
  kRefused,    ///< The system refuses to set it.
  kNotObeyed,  ///< The driver's: the device was shown not to obey another.
  kWindows,    ///< For windows in the steps of a client that is never idle.
};

/// When the jobs of a client close the gates below, for status output (docs/reference/closing.md).
enum class CloseState : std::uint8_t {
  kUnknown,        ///< At the first launch, or as a target says: nothing is tried.
  kLearning,       ///< It is being tried.
  kClosesAtFirst,  ///< At the first launch.
  kClosesLater,    ///< After a part of the job that was shown to be harmless.
  kStaysOpen,      ///< Never: closing brings nothing.
};

/// Slot::close_state: the state, and the level in eighths of a job; kNeverLevel: not at all.
struct CloseWord {
  static constexpr std::uint8_t kNeverLevel = 9;
  CloseState state = CloseState::kUnknown;
  std::uint8_t level = 0;

  [[nodiscard]] constexpr std::uint32_t pack() const noexcept {
    return static_cast<std::uint32_t>(state) | std::uint32_t{level} << 8U;
  }
  [[nodiscard]] static constexpr CloseWord unpack(std::uint32_t word) noexcept {
    return {static_cast<CloseState>(word & 0xffU), static_cast<std::uint8_t>(word >> 8U & 0xffU)};
  }
};

/// How a client with a target closes the gates below, for status output.
enum class TargetState : std::uint32_t {
  kNone,      ///< No target: the gates close when a job begins.
  kLearning,  ///< Too few jobs have run with closed gates. The gates close when a job begins.
  kKept,      ///< The gates close as late as the target allows.
  kMissed,    ///< The target cannot be kept. The gates close when a job begins.
};

// The bits of Slot::outranked: why a launch may have more to do.
inline constexpr std::uint32_t kOutranked =
    1;  ///< A client of higher priority lives on the device.
/// An order may be pending for which launches are refused. A broker sets the bit after it has
/// written the order. The owner clears it by the rule of settle() in gates.hpp.
inline constexpr std::uint32_t kOrdered = 2;
/// The client takes turns with others of its priority, and may have to hold itself. The owner
/// writes.
inline constexpr std::uint32_t kTakesTurns = 4;

using Word = std::atomic<std::uint64_t>;
using HalfWord = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && HalfWord::is_always_lock_free);

/// Counters of one driver entry in one client.
struct EntryCounters {
  std::array<Word, 16> words;

  Word& operator[](Count count) noexcept { return words[static_cast<std::size_t>(count)]; }
  /// A word of kGated that one thread writes, without a locked addition.
  Word& stripe(std::size_t index) noexcept { return words[words.size() - kLaunchStripes + index]; }

  [[nodiscard]] std::uint64_t value(Count count) const noexcept {
    const std::uint64_t own =
        words[static_cast<std::size_t>(count)].load(std::memory_order_relaxed);
    return count == Count::kGated ? own + sum_of(words.size() - kLaunchStripes, words.size()) : own;
  }
  /// Each job sums them up several times.
  [[nodiscard]] std::uint64_t launches() const noexcept {
    return sum_of(0, static_cast<std::size_t>(Count::kLaunchKinds)) +
           sum_of(words.size() - kLaunchStripes, words.size());
  }

 private:
  [[nodiscard]] std::uint64_t sum_of(std::size_t from, std::size_t to) const noexcept {
    std::uint64_t sum = 0;
#pragma GCC unroll 16
    for (std::size_t i = from; i < to; ++i) sum += words[i].load(std::memory_order_relaxed);
    return sum;
  }
};
static_assert(sizeof(EntryCounters) == 128);
static_assert(static_cast<std::size_t>(Count::kSize) + kLaunchStripes <= 16);

/// The counters of Slot that concern a target. They count all targets of a client, and never go
/// back, because metrics are made of them.
struct TargetCounts {
  Word jobs, kept, open_ns, total_ns;
};

/// One client: one process on one device.
struct alignas(kLine) Slot {
  // The gate's line. Holders write it, the owner reads it before each launch, and the GPU polls it.
  Word gate;                 ///< The set of holders, one bit each. 0: open.
  Word info;                 ///< SlotInfo. Changed by compare-exchange only.
  HalfWord wake;             ///< Futex: counts openings of the gate.
  HalfWord waiters;          ///< Threads asleep on `wake`. A hint: a killed waiter stays counted.
  Word closed_since_ns;      ///< Time when the gate last closed; 0 while open.
  Word closed_ns;            ///< Total time that this client was held: see held_ns() in view.hpp.
  Word slack_ns;             ///< Time left until an announced job begins; else kUnlimitedSlack.
  HalfWord outranked;        ///< kOutranked, kOrdered and kTakesTurns, which each launch reads.
  HalfWord announced;        ///< 1 after the first announcement: long launches then wait for slack.
  Word slack_until_ns;       ///< `slack_ns` is void after this time, and the owner resets it.
  Word early_hold_until_ns;  ///< Not 0 while gates are held for a job that has not begun: the hold
                             ///< is void after this time.
  HalfWord reader;  ///< 1 if the owner can only read the board: the node service writes for it.
                    ///< Written by the controller before the slot is reserved.
  HalfWord slice_ceiling;  ///< The longest time slice that the site allows its user, in us; 0: the
                           ///< driver's. Written by the controller before the slot is reserved.
  Word memory_ceiling;     ///< The most memory that its user may ask for; 0: no ceiling. Written by
                           ///< the controller before the slot is reserved.
  Word memory_limit;       ///< What the client may hold, in bytes; 0: no limit.
  HalfWord mps;            ///< MpsWord, as the client said when it attached. Written by the
                           ///< controller before the slot is reserved.
  /// Streams that have made no progress for max_hold, and so keep no job open. Written by the
  /// owner, for status output only.
  HalfWord stalled_streams;
  std::array<std::uint8_t, 16> reserved_gate;

  // Written by the owner. The predictions and launch durations are for status output only.
  alignas(kLine) Word job;    ///< Odd while active: the first begin and the last end add 1.
  Word job_since_ns;          ///< Time when the last job began, with closed or open gates.
  Word policy;                ///< Policy::pack() of the policy in force, which may be a fallback.
  HalfWord skipped_waits;     ///< Waits on the driver that took too long and were skipped.
  HalfWord unhooked_lookups;  ///< Lookups of entries that give the GPU work and have no hook.
  Word predictions;           ///< Predictions whose outcome is known (hit or miss).
  Word max_hold_opened;       ///< Times max_hold opened the gate.
  Word watcher_beat_ns;       ///< Time when the watcher last ran.
  std::array<char, 32> unhooked_name;  ///< The entry of the last unhooked lookup.
  // Only under device:Tus. The two durations are GPU times of launches without a wait inside.
  Word longest_launch_ns;   ///< The longest launch of known duration.
  Word ungated_graph_ns;    ///< The longest graph of known duration.
  Word unknown_launches;    ///< Launches whose duration was unknown or varies.
  Word prediction_hits;     ///< Predictions that came true.
  Word prediction_cost_ns;  ///< Time for which gates were closed for predictions and no job ran.

  // A line of its own, which other processes read every 20 ms while a gate is closed.
  alignas(kLine) Word syncs;  ///< Synchronising calls that returned: a sign of progress.
  /// Odd while a job runs and does not close the gates below yet, because its target allows that.
  /// Such a client is not active.
  Word open_job;
  // For status output only.
  Word target;            ///< Target::pack() of the target in force; 0: none.
  Word target_ns;         ///< A job must end in this time; 0 while unknown.
  Word alone_ns;          ///< How long jobs take with closed gates, at the target's percentile.
  Word target_jobs;       ///< Jobs that ended with a known target. See before_target.
  Word target_kept;       ///< How many of them ended in time.
  Word open_ns;           ///< Total time of jobs with open gates, like target_jobs.
  Word gpu_ns;            ///< GPU time of the client's work, an estimate. Real time if simulated.
  HalfWord target_state;  ///< TargetState.
  HalfWord
      waited_for;  ///< 1 + the slot of a client above that waits for work of this one; 0: none.
  Word target_total_ns;  ///< Total time of the jobs that ended, like target_jobs.
  /// Since when a thread has been in the same synchronising call, to a tick; 0: none is in one.
  /// Those whom this client holds read it.
  Word sync_since_ns;
  Word busy_ns;          ///< When the client last used the GPU (base/gpu_use.hpp); 0: never.
  HalfWord slice_us;     ///< The time slice of its channel groups that was set; 0: the driver's.
  HalfWord slice_state;  ///< SliceState.
  HalfWord gpu_share;    ///< How much of its jobs the GPU is busy, in 1/1000; 0: unknown.
  HalfWord close_state;  ///< CloseWord
  /// What jobs waited longer for that: the bounds of the median, in us. Signed numbers.
  HalfWord close_low_us, close_high_us;

  // Written by the controller when it gives the slot out.
  alignas(kLine) RobustMutex alive;
  HalfWord pid;
  HalfWord uid;  ///< The user of the process, as the controller sees it.
  Word attached_ns;
  std::array<char, kNameSize> name;              ///< The client's name for users. NUL-terminated.
  alignas(kLine) std::array<char, 128> command;  ///< The command line, cut. NUL-terminated.
  Word requested_target;                         ///< Target::pack(); the owner may also write it.
  Word requested_policy;               ///< Policy::pack() of the policy that the user asked for.
  std::array<char, kLabelSize> label;  ///< "key=value,key=value". NUL-terminated.
  HalfWord requested_slice;            ///< See slice.hpp.
  HalfWord requested_weight;           ///< See weight.hpp.

  /// waived[h]: the job counter of holder h for which this gate was opened, because h was stopped
  /// or made no progress. The owner writes.
  alignas(kLine) std::array<Word, 64> waived;

  /// held_by_ns[h]: the part of `closed_ns` that ended when holder h opened the gate. For status
  /// output only. Any process may add.
  alignas(kLine) std::array<Word, 64> held_by_ns;

  /// Written by the owner after it has opened the lower-priority gates.
  alignas(kLine) JobTimes job_times;
  StepTimes steps;  ///< Written by the owner, for status output only.
  /// The part of `gpu_ns` that is an upper bound: its launches were only measured while another
  /// client had a job. Written by the owner, for status output only.
  Word gpu_bound_ns;
  TargetCounts before_target;  ///< What had been counted when the target was set.
  /// pack_give() in give.hpp; 0: the default. Written by the controller.
  HalfWord requested_give;
  /// What the client gave in the last minute: by how much its jobs and steps took longer, in
  /// 1/10000, because gates close late, by windows, and because gates stay open. For status output
  /// only; a reader holds nobody, and so reports none. Nothing is known while `gives_known` is 0.
  HalfWord gives_known, gives_closing, gives_windows, gives_open;
  /// Jobs and steps of the client while it holds others: how many, how long, and how much of that
  /// it was in calls that wait for the GPU. None ever falls. For status output only.
  Word items, items_ns, items_waited_ns;

  alignas(kLine) std::array<EntryCounters, kMaxEntries> entries;

  alignas(kLine) MemoryLine memory;

  alignas(kLine) TurnLine turn;
};

/// A GPU or MIG instance, named by its UUID, which is the same in every process.
struct Device {
  std::array<std::uint8_t, 16> uuid;
  HalfWord used;
  HalfWord outside;  ///< OutsideWord: processes without a slot, as the controller saw them last.
  std::array<char, 40> name;
};
static_assert(sizeof(Device) == 64);

struct alignas(kLine) Board {
  // Written once, before the magic.
  Word magic;
  HalfWord layout_version;
  HalfWord size;  ///< sizeof(Board)
  Word board_id;  ///< Random. A client reattaches only to the board that it has mapped.
  Word max_hold_ns;
  std::array<std::uint8_t, 96> reserved_head;

  // Written by the controller while it runs.
  alignas(kLine) Word heartbeat_ns;
  HalfWord controller_pid;  ///< 0 after an orderly exit.
  HalfWord controller_starts;
  Word used;  ///< One bit per slot that is not kFree. A superset while a slot changes hands.
  /// SliceAnswer::pack(), by device: whether it obeys time slices (slice_answer.hpp).
  std::array<std::atomic<std::uint16_t>, kMaxDevices> slice_answers;
  std::array<std::uint8_t, 40> reserved_controller;
  /// What the session has gained: GainWords (gain.hpp).
  alignas(kLine) std::array<std::uint8_t, kLine> gain;

  alignas(kLine) std::array<Device, kMaxDevices> devices;
  std::array<Slot, kSlots> slots;
};

// The layout is a contract between processes built at different times. Any change below needs a new
// kLayoutVersion.
static_assert(offsetof(Slot, gate) == 0 && offsetof(Slot, info) == 8);
static_assert(offsetof(Slot, wake) == 16 && offsetof(Slot, waiters) == 20);
static_assert(offsetof(Slot, closed_since_ns) == 24 && offsetof(Slot, closed_ns) == 32);
static_assert(offsetof(Slot, slack_ns) == 40 && offsetof(Slot, outranked) == 48);
static_assert(offsetof(Slot, announced) == 52 && offsetof(Slot, slack_until_ns) == 56);
static_assert(offsetof(Slot, early_hold_until_ns) == 64 && offsetof(Slot, reader) == 72);
static_assert(offsetof(Slot, slice_ceiling) == 76);
static_assert(offsetof(Slot, memory_ceiling) == 80 && offsetof(Slot, memory_limit) == 88);
static_assert(offsetof(Slot, mps) == 96 && offsetof(Slot, stalled_streams) == 100);
static_assert(offsetof(Slot, job) == 128 && offsetof(Slot, job_since_ns) == 136);
static_assert(offsetof(Slot, policy) == 144 && offsetof(Slot, skipped_waits) == 152);
static_assert(offsetof(Slot, unhooked_lookups) == 156 && offsetof(Slot, predictions) == 160);
static_assert(offsetof(Slot, max_hold_opened) == 168 && offsetof(Slot, watcher_beat_ns) == 176);
static_assert(offsetof(Slot, unhooked_name) == 184 && offsetof(Slot, longest_launch_ns) == 216);
static_assert(offsetof(Slot, ungated_graph_ns) == 224 && offsetof(Slot, unknown_launches) == 232);
static_assert(offsetof(Slot, prediction_hits) == 240 && offsetof(Slot, prediction_cost_ns) == 248);
static_assert(offsetof(Slot, syncs) == 256 && offsetof(Slot, open_job) == 264);
static_assert(offsetof(Slot, target) == 272 && offsetof(Slot, gpu_ns) == 320);
static_assert(offsetof(Slot, target_state) == 328 && offsetof(Slot, waited_for) == 332);
static_assert(offsetof(Slot, target_total_ns) == 336 && offsetof(Slot, sync_since_ns) == 344);
static_assert(offsetof(Slot, busy_ns) == 352 && offsetof(Slot, slice_us) == 360);
static_assert(offsetof(Slot, slice_state) == 364 && offsetof(Slot, gpu_share) == 368);
static_assert(offsetof(Slot, close_state) == 372 && offsetof(Slot, close_high_us) == 380);
static_assert(offsetof(Slot, alive) == 384 && sizeof(RobustMutex) == 48);
static_assert(offsetof(Slot, pid) == 432 && offsetof(Slot, uid) == 436);
static_assert(offsetof(Slot, attached_ns) == 440 && offsetof(Slot, name) == 448);
static_assert(offsetof(Slot, command) == 512 && offsetof(Slot, requested_target) == 640);
static_assert(offsetof(Slot, requested_policy) == 648);
static_assert(offsetof(Slot, label) == 656 && offsetof(Slot, waived) == 768);
static_assert(offsetof(Slot, requested_slice) == 760 && offsetof(Slot, requested_weight) == 764);
static_assert(offsetof(Slot, held_by_ns) == 1280);
static_assert(offsetof(Slot, job_times) == 1792 && sizeof(JobTimes) == 672);
static_assert(offsetof(JobTimes, buckets) == 16 && offsetof(JobTimes, last) == 152);
static_assert(offsetof(Slot, steps) == 2464 && sizeof(StepTimes) == 632);
static_assert(offsetof(Slot, gpu_bound_ns) == 3096 && offsetof(Slot, before_target) == 3104);
static_assert(offsetof(Slot, requested_give) == 3136 && offsetof(Slot, gives_known) == 3140);
static_assert(offsetof(Slot, gives_closing) == 3144 && offsetof(Slot, gives_open) == 3152);
static_assert(offsetof(Slot, items) == 3160 && offsetof(Slot, items_waited_ns) == 3176);
static_assert(offsetof(Slot, entries) == 3200);
static_assert(offsetof(Slot, memory) == 5248 && offsetof(MemoryLine, order) == 40);
static_assert(offsetof(MemoryLine, critical) == 56 && offsetof(MemoryLine, draining) == 60);
static_assert(offsetof(MemoryLine, wake) == 64 && offsetof(MemoryLine, order_ns) == 72);
static_assert(offsetof(MemoryLine, broker) == 88 && offsetof(MemoryLine, obedient) == 96);
static_assert(offsetof(MemoryLine, refused) == 104);
static_assert(offsetof(MemoryLine, refused_allocations) == 100);
static_assert(offsetof(Slot, turn) == 5376 && offsetof(TurnLine, called) == 20);
static_assert(offsetof(TurnLine, covered) == 24 && offsetof(TurnLine, arrived) == 32);
static_assert(sizeof(Slot) == 5504 && sizeof(Slot) % kLine == 0);
static_assert(offsetof(Board, magic) == 0 && offsetof(Board, layout_version) == 8);
static_assert(offsetof(Board, size) == 12 && offsetof(Board, board_id) == 16);
static_assert(offsetof(Board, max_hold_ns) == 24 && offsetof(Board, heartbeat_ns) == 128);
static_assert(offsetof(Board, controller_pid) == 136 && offsetof(Board, used) == 144);
static_assert(offsetof(Board, slice_answers) == 152);
static_assert(offsetof(Board, gain) == 256 && offsetof(Board, devices) == 384 &&
              offsetof(Board, slots) == 2432);

}  // namespace sluice::shm
