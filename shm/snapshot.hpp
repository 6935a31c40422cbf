#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "shm/board.hpp"

/// What a board says at one moment, in a form for people. Reading is not atomic over the whole
/// board: a job may begin between two slots. Times are in ns of CLOCK_MONOTONIC or lengths in ns.
namespace sluice::shm {

/// One process that keeps a gate closed.
struct Holder {
  std::uint32_t pid = 0;  ///< 0: the controller itself.
  int priority = 0;
  std::string name;
  std::string command;
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
  std::uint32_t generation = 0;  ///< Tells its process from the earlier ones of the slot.
  std::uint32_t pid = 0;
  std::string name;  ///< What users call it.
  std::string command;
  int device = 0;
  int priority = 0;
  std::string policy;            ///< In force.
  std::string requested_policy;  ///< Differs where the device could not do what was asked for.
  SlotState state = SlotState::kFree;
  std::string fail_reason;  ///< Empty, or why it runs ungated.
  bool active = false;
  std::uint64_t active_ns = 0;
  std::uint64_t attached_ns = 0;              ///< For how long it has been a client.
  std::uint64_t jobs_ended = 0;               ///< By this client alone.
  std::vector<std::uint64_t> recent_jobs_ns;  ///< Durations of the last of them, oldest first.
  std::vector<Holder> holders;                ///< Not empty: its gate is closed.
  std::uint64_t held_ns = 0;                  ///< For how long its gate has been closed now.
  std::uint64_t held_total_ns = 0;
  std::uint64_t launches = 0;
  std::uint64_t bypassed = 0;
  std::uint64_t waits = 0;
  std::uint64_t max_hold_opened = 0;
  std::uint64_t unhooked_asked = 0;
  std::string unhooked_name;
  std::uint64_t longest_ns = 0;         ///< Longest learned launch without a wait inside, GPU time.
  std::uint64_t bare_graph_ns = 0;      ///< The same of graphs alone.
  std::uint64_t unknown_launches = 0;   ///< Paced as if they were longer than any spacing.
  std::uint64_t predicted = 0;          ///< Jobs of its that were expected at some time,
  std::uint64_t predicted_hits = 0;     ///< those that came then,
  std::uint64_t predicted_paid_ns = 0;  ///< and the time that others were held for them in vain.
  std::vector<EntrySnapshot> entries;   ///< Those with any launch.
};

struct DeviceSnapshot {
  int index = 0;  ///< On the board.
  std::string name;
  std::string uuid;
};

struct Snapshot {
  std::uint64_t taken_ns = 0;
  std::uint64_t board_id = 0;
  std::uint32_t controller_pid = 0;
  bool controller_lives = false;  ///< Its heart has beaten lately.
  std::uint64_t heartbeat_age_ns = 0;
  std::uint32_t controller_starts = 0;
  std::uint64_t max_hold_ns = 0;
  std::vector<DeviceSnapshot> devices;
  std::vector<ClientSnapshot> clients;
};

/// Reads `board` as of `now_ns`.
Snapshot take_snapshot(const Board& board, std::uint64_t now_ns);

/// How a bypass is called in the output.
std::string bypass_name(Count count);

/// active, held, idle, failed open, starting, leaving or dead.
std::string state_name(const ClientSnapshot& client);

}  // namespace sluice::shm
