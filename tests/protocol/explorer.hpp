#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/protocol/model.hpp"

/// Explores every interleaving of a scenario.
///
/// An actor is a thread: a list of calls of gates.hpp. Between two accesses to the board the
/// explorer may run any other actor, or let a process die. A call is never suspended: to make its
/// next access it is run again from its beginning, the accesses it has already made being answered
/// from a log. So a call must depend on nothing but what it reads through its View and the result
/// of the call before it.
///
/// Memory is sequentially consistent, as the code asks for (all its accesses are seq_cst).
///
/// Two states are the same if all words are equal and every actor stands in the same call with the
/// same log, for its local variables are a function of these. Every step lengthens a log or ends
/// a call, so the state graph has no cycle, and exhausting it proves that every run ends.
namespace sluice::protocol {

/// What may end a process before its script does.
enum class Mortality : std::uint8_t {
  kNever,
  kDies,    ///< At any step its watcher's mutex is released; its threads run on for any number of
            ///< further steps; then it is gone. With none in between this is a sudden death.
  kSudden,  ///< At any step all threads end at once.
  kStops,   ///< At any step it is stopped for ever.
};

struct Process {
  std::string name;
  Mortality mortality = Mortality::kNever;
  int slot = -1;  ///< Of a client.
};

struct World;

struct Call {
  std::string name;
  /// `previous` is the result of the actor's call before this one; true for the first.
  std::function<bool(ModelView&, bool previous)> run;
  /// If given, the call starts only once this holds. Must stay true once it is.
  std::function<bool(const World&)> when = {};
  /// What `when` waits for may never come: an actor may end here.
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
  /// One more tick of every watcher and of the controller.
  std::function<void(ModelView&, const Memory&)> tick = {};
  /// Empty if the end state is as the scenario wants it, beyond the invariant that always holds.
  std::function<std::string(const Memory&)> expect = {};
  /// Empty if the memory is allowed at any moment.
  std::function<std::string(const Memory&)> always = {};
};

inline constexpr std::size_t kMaxLog = 160;  ///< Accesses of one call; more is a violation.

/// The state of one actor.
struct Thread {
  std::uint8_t call = 0;  ///< Calls ended so far.
  bool previous = true;   ///< Result of the last ended call.
  bool ended = false;
  Access next;  ///< The access that its next step makes.
  std::array<std::uint64_t, 2> history{};
  std::size_t made = 0;  ///< Accesses made in the current call.
  std::array<std::uint64_t, kMaxLog> log;

  Thread() = default;
  Thread(const Thread& other) { *this = other; }
  Thread& operator=(const Thread& other);  ///< Copies only what is used of the log.
  ~Thread() = default;
};

struct World {
  Memory memory;
  std::vector<Thread> threads;

  [[nodiscard]] bool done(int actor, int calls) const {
    return threads[static_cast<std::size_t>(actor)].call >= calls;
  }
  [[nodiscard]] bool noticed(int process) const {
    return memory.life(process) == Life::kNoticed || memory.life(process) == Life::kGone;
  }
  [[nodiscard]] bool gone(int process) const { return memory.life(process) == Life::kGone; }
};

struct Result {
  std::uint64_t states = 0;  ///< Distinct states expanded.
  std::uint64_t steps = 0;   ///< Transitions taken.
  std::uint64_t ends = 0;    ///< Distinct end states checked.
  /// The first violation found: what, and the steps that lead to it.
  std::optional<std::string> violation;
  bool too_large = false;  ///< The violation is only that of Limits::max_states.
  /// Hashes of the end states' words, to compare explorations.
  std::vector<std::uint64_t> end_states;
};

struct Limits {
  /// Take a step alone where no other actor can ever touch the word it reads. Finds the same end
  /// states with fewer states; off only to check just that.
  bool reduce = true;
  /// More states are a violation.
  std::size_t max_states = 4'000'000;
};

Result explore(const Scenario& scenario, const Limits& limits = {});

/// The invariant of gates.hpp for an end state, written here a second time on purpose: from the
/// words and from who lives, without a line of gates.hpp. Empty if it holds.
std::string broken_invariant(const Memory& memory, const Scenario& scenario, bool after_tick);

}  // namespace sluice::protocol
