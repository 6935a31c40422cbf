#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "shm/board.hpp"
#include "shm/gain.hpp"
#include "shm/give.hpp"
#include "shm/labels.hpp"
#include "shm/mps_word.hpp"
#include "shm/slice_answer.hpp"

/// The state of a board at one moment, for status output. Reading is not atomic over the whole
/// board: a job may begin between two slots. Times are CLOCK_MONOTONIC ns, durations ns.
namespace sluice::shm {

/// A process that keeps a gate closed.
struct Holder {
  std::uint32_t pid = 0;  ///< 0: the controller.
  int priority = 0;
  std::string name;
  std::string command;
};

/// Time for which one client held another.
struct Wait {
  int slot = 0;           ///< Of the other client; kControllerBit: the controller.
  std::uint32_t pid = 0;  ///< Of the other client; 0: the controller.
  std::string name;       ///< Of the other client.
  std::uint64_t ns = 0;
};

/// The target of a client, and how its jobs keep it.
struct TargetSnapshot {
  std::string text = "none";       ///< The target in force.
  std::string requested = "none";  ///< Differs from `text` until the client has taken it up.
  TargetState state = TargetState::kNone;
  std::uint64_t limit_ns = 0;  ///< A job must end in this time; 0 while unknown.
  std::uint64_t alone_ns = 0;  ///< How long jobs take with closed gates; 0 while unknown.
  std::uint64_t jobs = 0;      ///< Jobs that ended with a known target.
  std::uint64_t kept = 0;      ///< How many of them ended in time.
  std::uint64_t open_ns = 0;   ///< Total time of jobs during which the gates below were open.
  std::uint64_t total_ns = 0;  ///< Total time of jobs. All four since the target was set.
  std::uint64_t all_jobs = 0;  ///< As `jobs`, of all targets that the client has had.
  std::uint64_t all_kept = 0;  ///< How many of them ended in time.
  bool gates_open = false;     ///< A job runs and does not close the gates below yet.
};

/// The steps of a client that is never idle, and the windows in them.
struct StepsSnapshot {
  struct Kind {
    std::uint32_t name = 0;   ///< Tells the kinds of a client apart.
    std::uint32_t share = 0;  ///< Of its last steps, in 1/1000.
    std::uint64_t p50_ns = 0;
    std::uint64_t p99_ns = 0;
  };
  StepState state = StepState::kNone;
  std::uint64_t ended = 0;  ///< Since the client attached; 0: it never had steps.
  std::uint64_t open_ns = 0;
  std::uint64_t windows = 0;
  std::uint64_t window_ns = 0;  ///< How long the gates open at a time.
  std::uint32_t cost = 0;       ///< By what part windows lengthen the steps, in 1/1000.
  std::vector<Kind> kinds;      ///< The most frequent ones, the first one first.
  std::uint64_t total_ns = 0;   ///< Total duration of the ended steps.
  std::uint64_t seen = 0;       ///< Ended steps, also of a client that is idle between its jobs.
  std::vector<std::uint64_t> recent_ns;  ///< Durations of the last of these, oldest first.
};

/// How much of its time a client may give to those below it, and what it gave in the last minute.
struct GiveSnapshot {
  std::uint32_t most = kDefaultGive;  ///< In 1/1000.
  bool known = false;                 ///< Whether the numbers below are.
  std::uint32_t closing = 0;          ///< Because gates close late, in 1/10000.
  std::uint32_t windows = 0;          ///< By windows.
  std::uint32_t open = 0;             ///< Because gates stay open.
};

/// How long a client's jobs and steps waited for the GPU.
struct WaitsSnapshot {
  std::uint64_t items = 0;  ///< Jobs and steps, while the client holds others.
  std::uint64_t items_ns = 0;
  std::uint64_t waited_ns = 0;  ///< The part of `items_ns` in calls that wait for the GPU.
};

/// The device memory of a client, and what a broker asks of it.
struct MemorySnapshot {
  std::uint64_t held_bytes = 0;
  std::uint64_t peak_bytes = 0;
  std::optional<std::uint64_t> limit_bytes;  ///< Of its user or the site. Nothing: no limit.
  std::optional<std::uint64_t> grant_bytes;  ///< Of a broker. Nothing: no limit.
  std::string order;                         ///< The order that it has not obeyed; empty: none.
  std::uint64_t order_age_ns = 0;            ///< Time since that order.
  std::uint64_t base_bytes = 0;              ///< Its need is base + slope * items; 0: unknown.
  std::uint64_t slope_bytes = 0;
  std::uint64_t refused_launches = 0;
  std::uint64_t refused_allocations = 0;
};

/// Counters of one driver entry in one client.
struct EntrySnapshot {
  std::string name;
  std::uint64_t launches = 0;
  std::array<std::uint64_t, static_cast<std::size_t>(Count::kSize)> counts{};

  [[nodiscard]] std::uint64_t count(Count which) const {
    return counts[static_cast<std::size_t>(which)];
  }
};

struct ClientSnapshot {
  int slot = 0;
  std::uint32_t generation = 0;  ///< Distinguishes this process from earlier ones in the slot.
  std::uint32_t pid = 0;
  std::uint32_t uid = 0;
  std::string name;  ///< The client's name for users.
  std::string command;
  Labels labels;
  int device = 0;
  int priority = 0;
  std::string policy;            ///< The policy in force.
  std::string requested_policy;  ///< Differs from `policy` after a fallback.
  SlotState state = SlotState::kFree;
  std::uint64_t skipped_waits = 0;    ///< Waits on the driver that took too long and were skipped.
  std::uint32_t waited_for_pid = 0;   ///< A client above that waits for work of this one; 0: none.
  std::uint32_t stalled_streams = 0;  ///< Without progress: they hold nobody.
  std::string slice;                  ///< The time slice that the user asks for.
  std::uint32_t slice_us = 0;         ///< The time slice that was set; 0: the driver's.
  SliceState slice_state = SliceState::kUnknown;
  MpsWord mps;               ///< Whether it is a client of an MPS daemon.
  std::uint32_t weight = 0;  ///< See weight.hpp.
  bool takes_turns = false;  ///< With the clients of its priority.
  bool has_turn = false;
  bool waits_for_turn = false;
  std::uint32_t gpu_share = 0;  ///< Of its jobs, in 1/1000; 0: unknown.
  CloseWord close;              ///< When its jobs close the gates below.
  std::int32_t close_low_us =
      0;  ///< What its jobs waited longer for that: the bounds of the median.
  std::int32_t close_high_us = 0;
  StepsSnapshot steps;
  bool active = false;  ///< A job runs, with closed or open gates below.
  std::uint64_t active_ns = 0;
  TargetSnapshot target;
  GiveSnapshot give;
  WaitsSnapshot waits_for_gpu;
  MemorySnapshot memory;
  std::uint64_t gpu_ns = 0;                   ///< GPU time of its work, an estimate; 0: unknown.
  std::uint64_t gpu_bound_ns = 0;             ///< The part of it that is an upper bound.
  std::uint64_t attached_ns = 0;              ///< Time since the client attached.
  std::uint64_t jobs_ended = 0;               ///< Ended jobs of this client alone.
  std::uint64_t jobs_total_ns = 0;            ///< Total duration of the ended jobs.
  std::vector<std::uint64_t> recent_jobs_ns;  ///< Durations of the last jobs, oldest first.
  std::vector<Holder> holders;                ///< Not empty: the gate is closed.
  std::uint64_t held_ns = 0;                  ///< Time for which the gate has been closed now.
  std::uint64_t held_total_ns = 0;
  /// Who held this client, the longest first. The rest of held_total_ns is the time of clients that
  /// have ended.
  std::vector<Wait> held_by;
  std::vector<Wait> held_others;  ///< Whom this client held, the longest first.
  std::uint64_t launches = 0;
  std::uint64_t bypassed = 0;
  std::uint64_t waits = 0;
  std::uint64_t max_hold_opened = 0;
  std::uint64_t unhooked_lookups = 0;
  std::string unhooked_name;
  std::uint64_t longest_launch_ns = 0;   ///< Longest known launch without a wait inside, GPU time.
  std::uint64_t ungated_graph_ns = 0;    ///< Longest known graph without a wait inside, GPU time.
  std::uint64_t unknown_launches = 0;    ///< Paced as if they were longer than any spacing.
  std::uint64_t predictions = 0;         ///< Predictions whose outcome is known (hit or miss).
  std::uint64_t prediction_hits = 0;     ///< Predictions that came true.
  std::uint64_t prediction_cost_ns = 0;  ///< Time for which others were held and no job ran.
  std::vector<EntrySnapshot> entries;    ///< Entries with at least one launch.
};

/// Whether two snapshots are of the same process in the same slot.
[[nodiscard]] bool same_client(const ClientSnapshot& a, const ClientSnapshot& b);

struct DeviceSnapshot {
  int index = 0;  ///< Index on the board.
  std::string name;
  std::string uuid;
  bool simulated = false;
  SliceAnswer slices;  ///< Whether it obeys time slices.
};

/// A process that uses a GPU of the session and has no slot: no gate holds its work.
struct OutsideProcess {
  int device = 0;
  std::uint32_t pid = 0;  ///< 0: the process is not visible here, as from inside a container.
  std::string command;
  std::optional<std::uint64_t> memory_bytes;  ///< GPU memory, if known.
  /// It has the interposer: it has launched nothing yet, is a forked child, or attached to another
  /// session or to none.
  bool preloaded = false;
};

struct Snapshot {
  std::uint64_t taken_ns = 0;
  std::uint64_t board_id = 0;
  std::uint32_t controller_pid = 0;
  bool controller_lives = false;  ///< Its last heartbeat is recent.
  std::uint64_t heartbeat_age_ns = 0;
  std::uint32_t controller_starts = 0;
  std::uint64_t max_hold_ns = 0;
  /// What the node service says about itself; empty for a user's own session. Not from the board.
  std::string service;
  Gain gain;  ///< As the controller saw last.
  std::vector<DeviceSnapshot> devices;
  std::vector<ClientSnapshot> clients;  ///< By device, priority (highest first) and pid.
  std::vector<OutsideProcess> outside;  ///< Not from the board: see outside.hpp.
};

/// Reads `board`. `now_ns` is the time from which ages are computed.
Snapshot take_snapshot(const Board& board, std::uint64_t now_ns);

/// The name of a bypass in the output.
std::string bypass_name(Count count);

/// The part of held_total_ns that clients caused that have ended.
std::uint64_t held_by_ended_ns(const ClientSnapshot& client);

/// Total time for which this client held others.
std::uint64_t held_others_ns(const ClientSnapshot& client);

/// The name of a state of a target in the output: none, learning, kept or missed.
std::string target_state_name(TargetState state);
std::string step_state_name(StepState state);

/// The name of an order in the output: none, shrink, drop, sleep or epoch.
std::string order_name(MemoryOrder kind);

/// active, held, idle, starting, leaving or dead.
std::string state_name(const ClientSnapshot& client);

}  // namespace sluice::shm
