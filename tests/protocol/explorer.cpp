#include "tests/protocol/explorer.hpp"

#include <algorithm>
#include <csetjmp>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

#include "tests/protocol/state_set.hpp"

namespace sluice::protocol {
namespace {

using Kind = Access::Kind;
using WordSet = std::uint64_t;

constexpr WordSet set_of(int word) { return WordSet{1} << static_cast<unsigned>(word); }

struct TooLarge : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Runs one actor for one access.
class Stepper final : public Port {
 public:
  Stepper(Memory& memory, Thread& thread) : memory_(memory), thread_(thread) {}

  /// Repeats the call as far as its log reaches, makes one further access if `one_more`, and runs
  /// to the access after that, which it stores in thread.next. Returns true if the call ended
  /// instead.
  bool run(const Call& call, bool one_more) {
    budget_ = one_more ? 1 : 0;
    cursor_ = 0;
    ModelView view(*this);
    // The tested functions have only trivial local variables, so leaving them by longjmp is
    // defined. An exception would do the same a hundred times slower.
    if (setjmp(stop_) != 0) return false;
    thread_.previous = call.run(view, thread_.previous);
    return true;
  }

  std::uint64_t access(const Access& access) override {
    if (cursor_ < thread_.made) return thread_.log[cursor_++];
    if (budget_ == 0) {
      thread_.next = access;
      std::longjmp(stop_, 1);
    }
    --budget_;
    const std::uint64_t value = memory_.apply(access);
    if (thread_.made == kMaxLog) {
      too_long_ = true;
      return value;
    }
    thread_.log[thread_.made++] = value;
    ++cursor_;
    for (std::size_t half = 0; half < 2; ++half) {
      std::uint64_t& history = thread_.history[half];
      history = (history ^ (value + half)) * 0x9e3779b97f4a7c15U;
      history = (history ^ (history >> (29U + half))) * 0xbf58476d1ce4e5b9U + thread_.made;
    }
    return value;
  }

  [[nodiscard]] bool too_long() const { return too_long_; }

 private:
  Memory& memory_;
  Thread& thread_;
  std::size_t cursor_ = 0;
  int budget_ = 0;
  bool too_long_ = false;
  std::jmp_buf stop_{};
};

/// The words that each actor may still read or write, learned by exploring.
struct Reach {
  std::vector<std::vector<WordSet>> read;     // [actor][call]: this call
  std::vector<std::vector<WordSet>> written;  // [actor][call]: this call

  explicit Reach(const Scenario& scenario) {
    for (const Actor& actor : scenario.actors) {
      read.emplace_back(actor.calls.size());
      written.emplace_back(actor.calls.size());
    }
  }

  friend bool operator==(const Reach&, const Reach&) = default;

  static WordSet rest(const std::vector<WordSet>& calls, std::size_t from) {
    WordSet words = 0;
    for (std::size_t call = from; call < calls.size(); ++call) words |= calls[call];
    return words;
  }
};

class Explorer {
 public:
  Explorer(const Scenario& scenario, const Limits& limits, const Reach& known)
      : scenario_(scenario), limits_(limits), known_(known), learned_(known) {
    DirectPort port(world_.memory);
    ModelView view(port);
    scenario.setup(view);
    world_.threads.resize(scenario.actors.size());
    for (std::size_t a = 0; a < world_.threads.size(); ++a) enter_call(a);
  }

  Result explore() {
    expand();
    result_.states = visited_.size();
    result_.ends = ends_.size();
    result_.end_states = ends_.values();
    std::sort(result_.end_states.begin(), result_.end_states.end());
    return std::move(result_);
  }

  [[nodiscard]] const Reach& learned() const { return learned_; }

 private:
  struct Step {
    int actor;  // or -1 - process when a process changes its life
    Access access;
    std::uint64_t value;
    std::uint8_t call;
  };

  Thread& thread(std::size_t actor) { return world_.threads[actor]; }
  const Actor& actor(std::size_t a) const { return scenario_.actors[a]; }
  [[nodiscard]] Life life(int process) const { return world_.memory.life(process); }
  Mortality mortality(std::size_t process) const { return scenario_.processes[process].mortality; }

  bool runs(std::size_t a) {
    const Life state = life(actor(a).process);
    return !thread(a).ended && state != Life::kGone && state != Life::kStopped;
  }

  /// Whether it runs or can be continued.
  bool may_run(std::size_t a) {
    const int process = actor(a).process;
    const bool paused = life(process) == Life::kStopped &&
                        mortality(static_cast<std::size_t>(process)) == Mortality::kPauses;
    return runs(a) || (paused && !thread(a).ended);
  }

  bool enabled(std::size_t a) {
    if (!runs(a)) return false;
    const Thread& t = thread(a);
    const Call& call = actor(a).calls[t.call];
    return t.made != 0 || !call.when || call.when(world_);
  }

  /// Finds the first access of the actor's current call.
  void enter_call(std::size_t a) {
    Thread& t = thread(a);
    for (;;) {
      if (t.call == actor(a).calls.size()) {
        t.ended = true;
        return;
      }
      Stepper stepper(world_.memory, t);
      if (!stepper.run(actor(a).calls[t.call], false)) return;
      ++t.call;
    }
  }

  void make_step(std::size_t a) {
    Thread& t = thread(a);
    const Access access = t.next;
    const bool reads = access.kind != Kind::kStore;
    const bool writes = access.kind != Kind::kLoad;
    if (reads) learned_.read[a][t.call] |= set_of(access.word);
    if (writes) learned_.written[a][t.call] |= set_of(access.word);
    path_.push_back({static_cast<int>(a), access, world_.memory[access.word], t.call});
    Stepper stepper(world_.memory, t);
    const bool call_ended = stepper.run(actor(a).calls[t.call], true);
    ++result_.steps;
    if (stepper.too_long()) throw TooLarge("a call does not end");
    if (!call_ended) return;
    ++t.call;
    t.made = 0;
    t.history = {};
    enter_call(a);
  }

  /// Whether a later time of the next access of `a` would never make a difference to any actor.
  /// Then exploring it now is enough.
  bool alone(std::size_t a) {
    const Access& next = thread(a).next;
    if (next.word > kUsedWord && next.word < outranked_word(0)) return false;
    const bool writes = next.kind != Kind::kLoad;
    // A death may prevent a write, and the end state shows whether it did.
    if (writes && mortality(static_cast<std::size_t>(actor(a).process)) != Mortality::kNever) {
      return false;
    }
    for (std::size_t b = 0; b < world_.threads.size(); ++b) {
      if (b == a || !may_run(b)) continue;
      WordSet touched = Reach::rest(known_.written[b], thread(b).call);
      if (writes) touched |= Reach::rest(known_.read[b], thread(b).call);
      if ((touched & set_of(next.word)) != 0) return false;
    }
    return true;
  }

  /// Takes the step of `a`, explores from there, and undoes the step. Returns false if `only_quiet`
  /// and the step ended a call that a death could have prevented: other actors may wait for that
  /// call, so the step is undone at once.
  bool descend(std::size_t a, bool only_quiet = false) {
    const Thread saved_thread = thread(a);
    const Memory saved_memory = world_.memory;
    make_step(a);
    const bool quiet = !only_quiet || thread(a).call == saved_thread.call ||
                       mortality(static_cast<std::size_t>(actor(a).process)) == Mortality::kNever;
    if (quiet) {
      check_always();
      expand();
    }
    if (result_.violation) return true;
    path_.pop_back();
    world_.memory = saved_memory;
    thread(a) = saved_thread;
    return quiet;
  }

  void expand() {
    if (result_.violation || !visited_.insert(key())) return;
    if (visited_.size() > limits_.max_states) {
      result_.too_large = true;
      throw TooLarge("more states than allowed");
    }
    if (limits_.reduce) {
      for (std::size_t a = 0; a < world_.threads.size(); ++a) {
        if (enabled(a) && alone(a) && descend(a, true)) return;
      }
    }
    bool any = false;
    for (std::size_t a = 0; a < world_.threads.size(); ++a) {
      if (!enabled(a)) continue;
      any = true;
      descend(a);
      if (result_.violation) return;
    }
    if (!any) check_end();
    for (std::size_t p = 0; p < scenario_.processes.size() && !result_.violation; ++p) end_life(p);
  }

  /// The next life of a process, or its present one if that is its last.
  [[nodiscard]] static Life next_life(Life now, Mortality kind) {
    if (now == Life::kGone || kind == Mortality::kNever) return now;
    switch (kind) {
      case Mortality::kDies:
        return now == Life::kLives ? Life::kFoundDead : Life::kGone;
      case Mortality::kStops:
        return Life::kStopped;
      case Mortality::kPauses:
        return now == Life::kLives ? Life::kStopped : Life::kContinued;
      default:
        return Life::kGone;
    }
  }

  void end_life(std::size_t process) {
    const Life now = life(static_cast<int>(process));
    const Life next = next_life(now, mortality(process));
    if (next == now) return;
    const int word = life_word(static_cast<int>(process));
    path_.push_back(
        {-1 - static_cast<int>(process),
         {Kind::kStore, static_cast<std::uint8_t>(word), static_cast<std::uint64_t>(next), 0},
         0,
         0});
    const Memory saved = world_.memory;
    world_.memory.set(word, static_cast<std::uint64_t>(next));
    if (next == Life::kFoundDead || next == Life::kGone) release_mutex(process);
    ++result_.steps;
    expand();
    if (result_.violation) return;
    world_.memory = saved;
    path_.pop_back();
  }

  /// The kernel releases the robust mutex of a dead process.
  void release_mutex(std::size_t process) {
    const Process& dead = scenario_.processes[process];
    if (dead.slot < 0) return;
    const int word = mutex_word(dead.slot);
    if (world_.memory[word] == dead.generation + std::uint64_t{1}) world_.memory.set(word, 0);
  }

  StateSet::Key key() {
    StateSet::Key key{world_.memory.hash(0), world_.memory.hash(1)};
    for (std::size_t a = 0; a < world_.threads.size(); ++a) {
      // The plans of a thread that runs no more do not matter. Its position does matter, to the
      // `when` of other actors.
      const Thread& t = thread(a);
      const std::uint64_t place = t.call * 4U + (t.previous ? 2U : 0U) + 1U;
      key.absorb(place, place);
      if (may_run(a)) key.absorb(t.history[0] + t.made, t.history[1] + t.made);
    }
    return key;
  }

  void check_always() {
    if (!scenario_.always) return;
    const std::string broken = scenario_.always(world_.memory);
    if (!broken.empty()) fail(broken);
  }

  void check_end() {
    for (std::size_t a = 0; a < world_.threads.size(); ++a) {
      if (runs(a) && !actor(a).calls[thread(a).call].optional) {
        return fail(actor(a).name + " waits indefinitely in " +
                    actor(a).calls[thread(a).call].name);
      }
    }
    if (!ends_.insert({world_.memory.hash(0), world_.memory.hash(1)})) return;
    // After the death of a process is found and before it is gone, its threads may still write
    // something that the controller has not seen.
    for (std::size_t p = 0; p < scenario_.processes.size(); ++p) {
      if (life(static_cast<int>(p)) == Life::kFoundDead) return;
    }
    std::string broken = broken_invariant(world_.memory, scenario_, false);
    if (broken.empty()) {
      const Memory saved = world_.memory;
      DirectPort port(world_.memory);
      ModelView view(port);
      scenario_.tick(view, saved);
      broken = broken_invariant(world_.memory, scenario_, true);
      world_.memory = saved;
      if (!broken.empty()) broken += ", even after a tick";
    }
    if (broken.empty() && scenario_.expect) broken = scenario_.expect(world_.memory);
    if (!broken.empty()) fail(broken);
  }

  void fail(const std::string& what) {
    if (result_.violation) return;
    std::ostringstream text;
    text << scenario_.name << ": " << what << '\n';
    for (const Step& step : path_) {
      if (step.actor < 0) {
        static constexpr std::array<const char*, 5> kChanges{"lives", "is found dead", "is gone",
                                                             "is stopped", "is continued"};
        text << "  " << scenario_.processes[static_cast<std::size_t>(-1 - step.actor)].name << ' '
             << kChanges[step.access.operand] << '\n';
        continue;
      }
      const Actor& who = actor(static_cast<std::size_t>(step.actor));
      text << "  " << who.name << ", " << who.calls[step.call].name << ": "
           << to_string(step.access, step.value) << '\n';
    }
    for (int word = 0; word < kWords; ++word) {
      const Access look{Kind::kLoad, static_cast<std::uint8_t>(word), 0, 0};
      const std::uint64_t value = world_.memory[word];
      if (value != 0) text << "  at the end " << to_string(look, value) << '\n';
    }
    result_.violation = text.str();
  }

 public:
  /// The result for an exception from explore().
  Result failed(const std::string& what) {
    fail(what);
    return std::move(result_);
  }

 private:
  const Scenario& scenario_;
  const Limits limits_;
  const Reach& known_;
  Reach learned_;
  World world_;
  StateSet visited_;
  StateSet ends_;
  std::vector<Step> path_;
  Result result_;
};

}  // namespace

Thread& Thread::operator=(const Thread& other) {
  if (this == &other) return *this;
  call = other.call;
  previous = other.previous;
  ended = other.ended;
  next = other.next;
  history = other.history;
  made = other.made;
  std::copy_n(other.log.begin(), made, log.begin());
  return *this;
}

Result explore(const Scenario& scenario, const Limits& limits) {
  // The reduction needs the words that each actor may ever touch. Start with no words, and repeat
  // with the words met so far until no new ones appear. Up to the first access to an unknown word
  // an exploration is exact, so it always finds such an access, and every violation it finds
  // belongs to a real run.
  Reach known(scenario);
  for (;;) {
    Explorer explorer(scenario, limits, known);
    Result result;
    try {
      result = explorer.explore();
    } catch (const TooLarge& error) {
      return explorer.failed(error.what());
    }
    if (result.violation || !limits.reduce || explorer.learned() == known) return result;
    Reach next = explorer.learned();
    known = std::move(next);
  }
}

}  // namespace sluice::protocol
