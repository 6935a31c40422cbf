#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/job_times.hpp"
#include "shm/robust_mutex.hpp"

/// The board: the one piece of memory that the processes of a session share. Plain fixed-width
/// data of a stated install; what may be written by whom is said in gates.hpp and README.md.
namespace sluice::shm {

inline constexpr std::uint64_t kBoardMagic = 0x4452'4f42'4543'4c53;  // "SLCEBORD"
inline constexpr std::uint32_t kLayoutVersion = 3;

inline constexpr int kSlots = 63;          ///< Bit 63 of a gate is the controller's own.
inline constexpr int kControllerBit = 63;  ///< Lets the controller hold a client by itself.
inline constexpr int kMaxDevices = 32;
inline constexpr int kMaxEntries =
    16;  ///< Counted driver entries: the launch lines of the hook table.
inline constexpr std::size_t kLine = 128;
inline constexpr std::size_t kNameSize = 64;  ///< Of a client's name, its final NUL included.

/// One beat every 20 ms; a client that sees none for 150 ms takes the controller for gone.
inline constexpr std::uint64_t kHeartbeatPeriodNs = 20'000'000;
inline constexpr std::uint64_t kHeartbeatLostNs = 150'000'000;
inline constexpr std::uint64_t kDefaultMaxHoldNs = 10'000'000'000;

/// Slot::room while no job is announced. The GPU compares as signed numbers.
inline constexpr std::uint64_t kRoomOpen = 0x7fff'ffff'ffff'ffff;

enum class SlotState : std::uint8_t {
  kFree,        ///< Nobody's. The controller may give it out.
  kReserved,    ///< Given to a process that has not mapped the board yet.
  kLive,        ///< Its gate is obeyed and its jobs close the gates below.
  kFailedOpen,  ///< Its process runs on ungated; its jobs still close the gates below.
  kLeaving,     ///< Its process is at exit: gate kept open, jobs over.
  kDead,        ///< Its process was found dead; freed when the kernel has taken it down.
};

/// The identity of a slot in one word, so that one load sees a consistent whole.
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

/// What is counted per driver entry. launches = gated + captured + the bypassed.
enum class Count : std::uint8_t {
  kGated,     ///< Passed the gate under a policy, whether it was closed or not.
  kCaptured,  ///< Recorded into a graph: no GPU work yet.
  // Went to the driver without passing the gate, because
  kBypassPolicyNone,       ///< the client's policy is none;
  kBypassUnattached,       ///< the client had no slot yet;
  kBypassFailedOpen,       ///< the controller was gone, or a driver wait of ours took too long;
  kBypassForeignCapture,   ///< it was captured into an existing graph, where nothing may be added.
  kLaunchKinds,            ///< The counts above add up to the launches.
  kWaited = kLaunchKinds,  ///< Were held on the host, or got a stream wait in front.
  kHeldNs,                 ///< Time that the launching threads were held on the host.
  kSize,
};

/// Why a client runs ungated, for `sluice status`.
enum class FailReason : std::uint32_t {
  kNone,
  kControllerGone,    ///< Its socket hung up.
  kControllerSilent,  ///< No heartbeat for kHeartbeatLostNs.
  kDriverWait,        ///< A wait on the driver outlasted its bound: the client stays ungated.
};

using Word = std::atomic<std::uint64_t>;
using HalfWord = std::atomic<std::uint32_t>;
static_assert(Word::is_always_lock_free && HalfWord::is_always_lock_free);

/// Counters of one driver entry in one client.
struct EntryCounters {
  std::array<Word, 16> words;

  Word& operator[](Count count) noexcept { return words[static_cast<std::size_t>(count)]; }
  const Word& operator[](Count count) const noexcept {
    return words[static_cast<std::size_t>(count)];
  }
  [[nodiscard]] std::uint64_t launches() const noexcept {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < static_cast<std::size_t>(Count::kLaunchKinds); ++i) {
      sum += words[i].load(std::memory_order_relaxed);
    }
    return sum;
  }
};
static_assert(sizeof(EntryCounters) == 128 && static_cast<int>(Count::kSize) <= 16);

/// One client: one process on one device.
struct alignas(kLine) Slot {
  // The gate's line. Holders write it; the owner reads it before each launch; the GPU polls it.
  Word gate;             ///< The set of its holders, a bit each. Open when 0.
  Word info;             ///< SlotInfo, changed by compare-exchange only.
  HalfWord wake;         ///< Futex: counts openings of the gate.
  HalfWord waiters;      ///< Threads asleep on `wake`. A hint: a killed waiter is never taken off.
  Word closed_since_ns;  ///< When the gate last went from open to closed; 0 while open.
  Word closed_ns;        ///< Total time closed while this client had work outstanding.
  Word room;             ///< ns left before a job that was announced begins; else kRoomOpen.
  HalfWord outranked;    ///< 1 while a client of higher priority lives on the device.
  HalfWord noticed;      ///< 1 once told of a job: long launches look at `room` from then on.
  Word room_until_ns;    ///< From then on `room` is void, and the owner opens it.
  Word job_until_ns;     ///< If not 0: the job that holds others has not begun, and is void then.
  std::array<std::uint8_t, 48> reserved_gate;

  // What the owner writes.
  alignas(kLine) Word job;  ///< Odd while the client is active: first begin and last end count.
  Word job_since_ns;        ///< When it last became active.
  Word policy;              ///< Policy::pack(), as it is in force (a fallback shows here).
  HalfWord fail_reason;     ///< FailReason.
  HalfWord unhooked_asked;  ///< Times the program asked the driver for a work entry we do not hook.
  Word predicted;           ///< Jobs of which it was decided whether they came as predicted,
  Word max_hold_opened;     ///< Times max_hold opened the gate.
  Word watcher_beat_ns;     ///< When the watcher last ran.
  std::array<char, 32> unhooked_name;  ///< The last one asked for.
  Word longest_ns;  ///< Policy device in time: the longest launch, of those whose length is known
                    ///< and that have no wait inside. GPU time.
  Word bare_graph_ns;      ///< The same of graphs alone.
  Word unknown_launches;   ///< Launches whose length was not known, or differs from time to time.
  Word predicted_hits;     ///< those that did, and the time that gates were closed for predictions
  Word predicted_paid_ns;  ///< and no job ran. For people to read, as is the rest of this line.

  // What the controller writes when it gives the slot out.
  alignas(kLine) RobustMutex alive;
  HalfWord pid;
  HalfWord requested_reserved;
  Word attached_ns;
  Word requested_policy;                         ///< Policy::pack(), as the user asked for it.
  std::array<char, kNameSize> name;              ///< What users call the client. NUL-terminated.
  alignas(kLine) std::array<char, 128> command;  ///< The command line, cut. NUL-terminated.

  /// waived[h] = job counter of holder h for which max_hold has opened this gate. The owner writes.
  alignas(kLine) std::array<Word, 64> waived;

  /// The owner writes, after the gates below are open.
  alignas(kLine) JobTimes job_times;

  alignas(kLine) std::array<EntryCounters, kMaxEntries> entries;
};

/// A GPU or MIG instance, named by what is the same in every process.
struct Device {
  std::array<std::uint8_t, 16> uuid;
  HalfWord used;
  HalfWord reserved;
  std::array<char, 40> name;
};
static_assert(sizeof(Device) == 64);

struct alignas(kLine) Board {
  // Written once, before the magic.
  Word magic;
  HalfWord layout_version;
  HalfWord size;  ///< sizeof(Board)
  Word board_id;  ///< Random: a client attaches again only to the board that it has mapped.
  Word max_hold_ns;
  std::array<std::uint8_t, 96> reserved_head;

  // What the controller writes all the time.
  alignas(kLine) Word heartbeat_ns;
  HalfWord controller_pid;  ///< 0 when it left in good order.
  HalfWord controller_starts;
  Word used;  ///< Bit per slot that is not kFree. A superset while a slot changes hands.
  std::array<std::uint8_t, 104> reserved_controller;

  alignas(kLine) std::array<Device, kMaxDevices> devices;
  std::array<Slot, kSlots> slots;
};

// The install is a contract between processes built at different times: a change of any line
// below needs a new kLayoutVersion.
static_assert(offsetof(Slot, gate) == 0 && offsetof(Slot, info) == 8);
static_assert(offsetof(Slot, wake) == 16 && offsetof(Slot, waiters) == 20);
static_assert(offsetof(Slot, closed_since_ns) == 24 && offsetof(Slot, closed_ns) == 32);
static_assert(offsetof(Slot, room) == 40 && offsetof(Slot, outranked) == 48);
static_assert(offsetof(Slot, noticed) == 52 && offsetof(Slot, room_until_ns) == 56);
static_assert(offsetof(Slot, job_until_ns) == 64);
static_assert(offsetof(Slot, job) == 128 && offsetof(Slot, job_since_ns) == 136);
static_assert(offsetof(Slot, policy) == 144 && offsetof(Slot, fail_reason) == 152);
static_assert(offsetof(Slot, unhooked_asked) == 156 && offsetof(Slot, predicted) == 160);
static_assert(offsetof(Slot, max_hold_opened) == 168 && offsetof(Slot, watcher_beat_ns) == 176);
static_assert(offsetof(Slot, unhooked_name) == 184 && offsetof(Slot, longest_ns) == 216);
static_assert(offsetof(Slot, bare_graph_ns) == 224 && offsetof(Slot, unknown_launches) == 232);
static_assert(offsetof(Slot, predicted_hits) == 240 && offsetof(Slot, predicted_paid_ns) == 248);
static_assert(offsetof(Slot, alive) == 256 && sizeof(RobustMutex) == 40);
static_assert(offsetof(Slot, pid) == 296 && offsetof(Slot, attached_ns) == 304);
static_assert(offsetof(Slot, requested_policy) == 312 && offsetof(Slot, name) == 320);
static_assert(offsetof(Slot, command) == 384 && offsetof(Slot, waived) == 512);
static_assert(offsetof(Slot, job_times) == 1024 && sizeof(JobTimes) == 672);
static_assert(offsetof(JobTimes, buckets) == 16 && offsetof(JobTimes, last_ns) == 152);
static_assert(offsetof(Slot, entries) == 1792);
static_assert(sizeof(Slot) == 3840 && sizeof(Slot) % kLine == 0);
static_assert(offsetof(Board, magic) == 0 && offsetof(Board, layout_version) == 8);
static_assert(offsetof(Board, size) == 12 && offsetof(Board, board_id) == 16);
static_assert(offsetof(Board, max_hold_ns) == 24 && offsetof(Board, heartbeat_ns) == 128);
static_assert(offsetof(Board, controller_pid) == 136 && offsetof(Board, used) == 144);
static_assert(offsetof(Board, devices) == 256 && offsetof(Board, slots) == 2304);

}  // namespace sluice::shm
