#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/protocol/model.hpp"

/// Explores every interleaving of a scenario.
///
/// An actor is a thread: a list of calls of gates.hpp. Between two accesses to the board the
/// explorer may run any other actor, or let a process die. A call is never suspended. For its next
/// access the explorer runs the call again from its beginning and answers earlier accesses from a
/// log. So a call may depend only on what it reads through its View and on the result of the
/// previous call.
///
/// Memory is sequentially consistent, as in gates.hpp, where all accesses are seq_cst.
///
/// Two states are equal if all words are equal and every actor is in the same call with the same
/// log, because the log determines the call's local variables. Every step lengthens a log or ends a
/// call, so the state graph has no cycle, and exploring all of it proves that every run ends.
namespace sluice::protocol {

/// The ways in which a process may end before its script does.
enum class Mortality : std::uint8_t {
  kNever,
  kDies,    ///< At any step its watcher's mutex is released. Its threads take any number of further
            ///< steps, then the process is gone. No further steps mean a sudden death.
  kSudden,  ///< At any step all threads end at once.
  kStops,   ///< At any step it is stopped and never continued.
  kPauses,  ///< At any step it is stopped, and continued at any later step, or never.
};

struct Process {
  std::string name;
  Mortality mortality = Mortality::kNever;
  int slot = -1;                 ///< The slot of a client.
  std::uint32_t generation = 0;  ///< The generation of the slot that is this client's.
};

struct World;

struct Call {
  std::string name;
  /// `previous` is the result of the actor's previous call; true for the first call.
  std::function<bool(ModelView&, bool previous)> run;
  /// If given, the call starts only when this holds. Once true, it must stay true.
  std::function<bool(const World&)> when = {};
  /// The actor may also end here, because `when` may never hold.
  bool optional = false;
};

struct Actor {
  std::string name;
  int process;
  std::vector<Call> calls;
};

struct Scenario {
  std::string name;
  std::vector<Process> processes = {};
  std::vector<Actor> actors = {};
  std::function<void(ModelView&)> setup = {};
  /// One further tick of every watcher and of the controller.
  std::function<void(ModelView&, const Memory&)> tick = {};
  /// Returns a fault of the end state, or nothing. The general invariant is always checked.
  std::function<std::string(const Memory&)> expect = {};
  /// Returns a fault of the memory at any moment, or nothing.
  std::function<std::string(const Memory&)> always = {};
};

inline constexpr std::size_t kMaxLog =
    160;  ///< Maximum accesses of one call; more are a violation.

/// The state of one actor.
struct Thread {
  std::uint8_t call = 0;  ///< Calls ended so far.
  bool previous = true;   ///< Result of the last ended call.
  bool ended = false;
  Access next;  ///< The access of its next step.
  std::array<std::uint64_t, 2> history{};
  std::size_t made = 0;  ///< Accesses made in the current call.
  std::array<std::uint64_t, kMaxLog> log;

  Thread() = default;
  Thread(const Thread& other) { *this = other; }
  Thread& operator=(const Thread& other);  ///< Copies only the used part of the log.
  ~Thread() = default;
};

struct World {
  Memory memory;
  std::vector<Thread> threads;

  [[nodiscard]] bool done(int actor, int calls) const {
    return threads[static_cast<std::size_t>(actor)].call >= calls;
  }
  [[nodiscard]] bool found_dead(int process) const {
    return memory.life(process) == Life::kFoundDead || memory.life(process) == Life::kGone;
  }
  [[nodiscard]] bool gone(int process) const { return memory.life(process) == Life::kGone; }
};

struct Result {
  std::uint64_t states = 0;  ///< Distinct states expanded.
  std::uint64_t steps = 0;   ///< Transitions taken.
  std::uint64_t ends = 0;    ///< Distinct end states checked.
  /// The first violation found, and the steps that lead to it.
  std::optional<std::string> violation;
  bool too_large = false;  ///< The only violation is Limits::max_states.
  /// Hashes of the words in each end state, to compare explorations.
  std::vector<std::uint64_t> end_states;
};

struct Limits {
  /// Take a step alone if no other actor can ever touch its word. This reduces the states and keeps
  /// all end states; only a test switches it off, to check exactly that.
  bool reduce = true;
  /// More states than this are a violation.
  std::size_t max_states = 4'000'000;
};

Result explore(const Scenario& scenario, const Limits& limits = {});

/// The invariant of gates.hpp for an end state, written a second time on purpose without using
/// gates.hpp: from the words and from the processes that live. Returns nothing if the invariant
/// holds.
std::string broken_invariant(const Memory& memory, const Scenario& scenario, bool after_tick);

}  // namespace sluice::protocol
