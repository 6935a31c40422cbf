// What must hold after each turn, and at the end. The rules are stated here a second time, by what
// has happened to whom, and without a function of shm/gates.hpp or of the interposer.
#include <algorithm>
#include <bit>

#include "tests/simulation/world.hpp"

namespace sluice::simulation {
namespace {

using shm::SlotInfo;
using shm::SlotState;

constexpr std::uint64_t kMs = 1'000'000;
/// Two ticks, and what a sleep takes too long. All bounds are of time in which those concerned run.
constexpr std::uint64_t kTicksNs = 60 * kMs;
/// The others may have three times the weight, and turns that are held last 100 ms.
constexpr std::uint64_t kLongestTurnsNs = 4'000 * kMs;
constexpr std::uint64_t kTurnLookNs = 60 * kMs;
/// A stopped holder holds for so long.
constexpr std::uint64_t kStoppedNs = 200 * kMs;
constexpr std::size_t kSlots = shm::kSlots;
constexpr std::uint64_t kNever = ~std::uint64_t{0} / 2;

/// What must not be for longer than a moment: since when it has been.
class Since {
 public:
  void set(bool is, std::uint64_t now_ns) {
    if (!is) ns_ = 0;
    if (is && ns_ == 0) ns_ = now_ns;
  }
  /// Whether it has been for longer than `bound_ns` after `from_ns`.
  [[nodiscard]] bool exceeds(std::uint64_t bound_ns, std::uint64_t from_ns,
                             std::uint64_t now_ns) const {
    return ns_ != 0 && now_ns > std::max(ns_, from_ns) + bound_ns;
  }

 private:
  std::uint64_t ns_ = 0;
};

std::uint64_t bit(std::size_t slot) { return std::uint64_t{1} << slot; }

}  // namespace

/// What was seen of a pair of clients, and since when.
struct World::Seen {
  struct Pair {
    bool held = false;            ///< The bit is set.
    std::uint64_t wrong_ns = 0;   ///< The bit is not as it should be.
    std::uint64_t held_ns = 0;    ///< The bit is set.
    std::uint64_t waived_ns = 0;  ///< The open job is waived.
    std::uint64_t waived = 0;     ///< That job.
  };
  std::array<std::array<Pair, kSlots>, kSlots> pairs{};
  std::array<std::uint64_t, kSlots> open_turn{};  ///< The last turn after which the gate was open.
  std::array<std::uint64_t, kSlots> closed_turn{};
  std::array<Since, kSlots> slack{};        ///< It is over, and limited.
  std::array<Since, kSlots> turn{};         ///< It waits for its turn.
  std::array<Since, kSlots> jobless{};      ///< It does so without a job.
  std::array<Since, kSlots> rank{};         ///< `outranked` is wrong.
  std::array<Since, kSlots> unprotected{};  ///< Work on the GPU, or an explicit job, without a job.
  std::array<Since, kSlots> idle{};         ///< A job without either.
  std::array<Since, kSlots> parked{};       ///< A job of work that waits for its program.
  std::array<Since, kSlots> late{};         ///< A job that has not begun in time.
  std::array<std::uint64_t, kSlots> word{};  ///< The identity and state of the slot.
  std::array<std::uint64_t, kSlots> word_ns{};
  std::array<bool, kSlots> obeys{};  ///< All its threads have had time to see that it is live.
};

void World::prepare_to_look() { seen_ = std::make_shared<Seen>(); }

Process* World::client_of(int index) {
  return with_pid(static_cast<pid_t>(slot(index).pid.load()));
}

int World::slot_of(const Process& process) {
  for (int i = 0; i < shm::kSlots; ++i) {
    const SlotState state = SlotInfo::unpack(slot(i).info.load()).state;
    if (client_of(i) == &process && state == SlotState::kLive) return i;
  }
  return -1;
}

/// Since when a thread of the process has been in the same synchronising call; kNever if none is in
/// one. `attached`: of those that began when it was a client, and so is seen by others.
std::uint64_t World::waits_since(const Process& process, bool attached) const {
  std::uint64_t since = kNever;
  for (const auto& fiber : fibers.all) {
    const bool waits = fiber->scope == &process && fiber->waits_since_ns != 0;
    if (waits && (fiber->attached || !attached)) since = std::min(since, fiber->waits_since_ns);
  }
  return since;
}

bool World::is_outranked(int index) {
  const SlotInfo own = SlotInfo::unpack(slot(index).info.load());
  bool outranked = false;
  for (std::uint64_t left = board.used.load() & ~bit(static_cast<std::size_t>(index)); left != 0;
       left &= left - 1) {
    const SlotInfo info = SlotInfo::unpack(slot(std::countr_zero(left)).info.load());
    const bool lives = info.state == SlotState::kReserved || info.state == SlotState::kLive;
    outranked = outranked || (lives && info.device == own.device && info.priority > own.priority);
  }
  return outranked;
}

bool World::should_hold(int holder, int target) {
  const SlotInfo h = SlotInfo::unpack(slot(holder).info.load());
  const SlotInfo t = SlotInfo::unpack(slot(target).info.load());
  const Process* const process = client_of(holder);
  const std::uint64_t job = slot(holder).job.load();
  return h.state == SlotState::kLive && t.state == SlotState::kLive && process != nullptr &&
         !process->killed && job % 2 == 1 && h.device == t.device && h.priority > t.priority &&
         slot(target).waived[static_cast<std::size_t>(holder)].load() != job;
}

void World::look() {
  for (const auto& fiber : fibers.all) {
    fiber->scope->ran_since_ns = std::max(
        {fiber->scope->ran_since_ns, fiber->late_until_ns, fiber->scope->stopped_until_ns});
  }
  for (std::uint64_t left = board.used.load(); left != 0; left &= left - 1) {
    const int target = std::countr_zero(left);
    const auto at = static_cast<std::size_t>(target);
    const SlotInfo info = SlotInfo::unpack(slot(target).info.load());
    (slot(target).gate.load() == 0 ? seen_->open_turn : seen_->closed_turn)[at] = turn_;
    if (std::exchange(seen_->word[at], info.pack()) != info.pack()) {
      seen_->word_ns[at] = fibers.now_ns;
      seen_->obeys[at] = false;
      for (std::size_t other = 0; other < kSlots; ++other)
        seen_->pairs[at][other] = seen_->pairs[other][at] = {};
    }
    Process* const process = client_of(target);
    if (process == nullptr || process->killed || info.state != SlotState::kLive) continue;
    for (std::uint64_t others = board.used.load() | slot(target).gate.load(); others != 0;
         others &= others - 1) {
      if (const int holder = std::countr_zero(others); holder != target)
        look_at_pair(holder, target);
    }
    const std::uint64_t now = fibers.now_ns;
    const std::uint64_t run_ns = process->ran_since_ns;
    const auto fault = [&](const char* what) { broken(what + std::to_string(process->pid)); };
    if (now > std::max(seen_->word_ns[at], run_ns) + kTicksNs) seen_->obeys[at] = true;
    const bool waits = (slot(target).gate.load() & bit(at)) != 0;
    seen_->turn[at].set(waits, now);
    if (seen_->turn[at].exceeds(kLongestTurnsNs, run_ns, now)) fault("its turn does not come: ");
    seen_->jobless[at].set(waits && slot(target).job.load() % 2 == 0, now);
    if (seen_->jobless[at].exceeds(kTicksNs + kTurnLookNs, run_ns, now))
      fault("waits for its turn without a job: ");
    const bool limited = slot(target).slack_ns.load() != shm::kUnlimitedSlack;
    seen_->slack[at].set(limited && now > slot(target).slack_until_ns.load() && !process->reader,
                         now);
    if (seen_->slack[at].exceeds(kTicksNs, run_ns, now)) fault("a slack that is over delays ");
    const bool outranked = (slot(target).outranked.load() & shm::kOutranked) != 0;
    seen_->rank[at].set(outranked != is_outranked(target) && !process->reader, now);
    if (seen_->rank[at].exceeds(kTicksNs, run_ns, now)) fault("outranked is wrong: ");
    // Work of a stream or context counts as done from the begin of the call that ends it. A stream
    // that shows no progress for max_hold keeps no job open: it may wait for its program.
    bool works = false;
    bool waits_for_program = true;
    bool has_wait = false;
    bool must_count = false;
    for (GpuStream& stream : process->streams) {
      if (stream.items.empty()) stream.busy_from_ns = 0;
      if (!stream.items.empty() && stream.busy_from_ns == 0) stream.busy_from_ns = now;
      const bool has_work =
          !stream.ends && std::any_of(stream.items.begin(), stream.items.end(),
                                      [](const auto& item) { return item.counted; });
      works = works || has_work;
      has_wait = has_wait || std::any_of(stream.items.begin(), stream.items.end(), [&](auto& item) {
                   return item.word == &process->host_word;
                 });
      waits_for_program = waits_for_program && (stream.items.empty() ||
                                                stream.items.front().word == &process->host_word);
      const bool may_be_stalled = now > stream.busy_from_ns + kMaxHoldNs - 2 * kTicksNs;
      // A launch that began before its process was a client may be in no job.
      const bool in_job = !stream.ends && std::any_of(stream.items.begin(), stream.items.end(),
                                                      [](const auto& item) { return item.in_job; });
      must_count = must_count || (in_job && has_work && !may_be_stalled);
    }
    const bool has_job = slot(target).job.load() % 2 == 1;
    const bool counts = info.priority != 0 && !process->changed;
    const bool wanted = process->open_jobs != 0 || (must_count && !process->explicit_jobs);
    // The law, or a window, may open the gates in a job.
    const bool may_open = process->by_law && slot(target).open_job.load() % 2 == 1;
    seen_->unprotected[at].set(counts && wanted && !has_job && !may_open, now);
    if (seen_->unprotected[at].exceeds(kTicksNs, run_ns, now)) fault("work without a job: ");
    const std::uint64_t until_ns = slot(target).early_hold_until_ns.load();
    const bool idle = process->open_jobs == 0 && !works && !has_wait && process->calls == 0 &&
                      until_ns == 0 && slot(target).gate.load() == 0;
    seen_->idle[at].set(counts && has_job && idle, now);
    if (seen_->idle[at].exceeds(kTicksNs, run_ns, now)) fault("a job without work: ");
    const bool parked = works && waits_for_program && !process->explicit_jobs && until_ns == 0 &&
                        process->calls == 0 && slot(target).gate.load() == 0;
    seen_->parked[at].set(counts && has_job && parked, now);
    if (seen_->parked[at].exceeds(kMaxHoldNs + 2 * kTicksNs, run_ns, now))
      fault("a stream that waits for its program keeps a job open: ");
    seen_->late[at].set(counts && has_job && until_ns != 0 && now > until_ns, now);
    if (seen_->late[at].exceeds(kTicksNs, run_ns, now))
      fault("a job that lapsed is not called off: ");
    for (GpuStream& stream : process->streams) {
      if (slot(target).gate.load() == 0) stream.since_closed = 0;
      if (stream.since_closed > stream.most_since_closed)
        fault("more kernels begin at its closed gate than its policy allows: ");
    }
  }
}

void World::look_at_pair(int holder, int target) {
  const auto h = static_cast<std::size_t>(holder);
  shm::Slot& of_target = slot(target);
  shm::Slot& of_holder = slot(holder);
  Seen::Pair& pair = seen_->pairs[static_cast<std::size_t>(target)][h];
  const std::uint64_t now = fibers.now_ns;
  const bool held = (of_target.gate.load() & bit(h)) != 0;
  const std::uint64_t job = of_holder.job.load();
  if (!held && job % 2 == 0) {
    pair = {};
    return;
  }
  const Process& owner = *client_of(target);
  const Process* const process = client_of(holder);
  const bool holder_lives = process != nullptr && !process->killed;
  // Since when all those run who have to put the bit right.
  std::uint64_t run_ns = owner.ran_since_ns;
  if (owner.reader)
    run_ns = std::max(run_ns, controller_lives_ ? controller_scope_.ran_since_ns : now);
  const std::uint64_t both_ns = holder_lives ? std::max(run_ns, process->ran_since_ns) : run_ns;
  const auto fault = [&](const char* what) {
    broken(std::string(what) + ": " + std::to_string(process != nullptr ? process->pid : 0) +
           " and " + std::to_string(owner.pid));
  };
  const auto since = [now](std::uint64_t& begin, bool is) {
    begin = !is ? 0 : begin == 0 ? now : begin;
  };

  const bool should = should_hold(holder, target);
  if (std::exchange(pair.held, held) != held) pair.wrong_ns = 0;
  since(pair.wrong_ns, held != should);
  const std::uint64_t settled_ns =
      held ? run_ns : std::max(both_ns, controller_scope_.ran_since_ns);
  const std::uint64_t settle_ns = owner.reader ? 2 * kTicksNs : kTicksNs;
  if (pair.wrong_ns != 0 && now > std::max(pair.wrong_ns, settled_ns) + settle_ns) {
    if (!holder_lives) return fault("a ghost holds");
    return fault(held ? "a bit that should not be set" : "a bit is missing");
  }
  if (!holder_lives || !held) {
    pair.held_ns = 0;
  } else {
    since(pair.held_ns, true);
    const std::uint64_t limit = board.max_hold_ns.load();
    const std::uint64_t idle_since =
        std::max({pair.held_ns, process->progress_ns, run_ns, process->ran_since_ns});
    if (now > idle_since + limit + settle_ns) fault("a hold without progress");
    // The one sees its wait a tick later, and then the other sees that.
    const std::uint64_t held_since = std::max({pair.held_ns, run_ns, process->ran_since_ns});
    // A control of a trial may come first, for which the gate stays closed.
    constexpr std::uint64_t kControlNs = 100'000'000;
    const std::uint64_t longest_ns = limit + kControlNs + 2 * kTicksNs + settle_ns;
    if (now > held_since + longest_ns &&
        now > std::max(held_since, waits_since(*process, true)) + longest_ns) {
      fault("a hold next to a wait without end");
    }
    const bool stopped = process->stopped_until_ns > now;
    if (stopped &&
        now > std::max({pair.held_ns, process->stopped_at_ns, run_ns}) + kStoppedNs + settle_ns) {
      fault("a stopped process holds");
    }
  }
  const std::uint64_t waived = of_target.waived[h].load();
  const bool is_waived = holder_lives && waived == job && job % 2 == 1;
  if (!is_waived) {
    pair.waived_ns = 0;
    return;
  }
  const bool announced = of_holder.early_hold_until_ns.load() != 0;
  // A hold may be the reason of a long wait of the holder.
  const std::uint64_t limit = board.max_hold_ns.load();
  // If it may have been, the next trial comes sooner.
  constexpr std::uint64_t kSoonNs = 40 * kMs;
  const std::uint64_t sooner = process->waited_ns != 0 ? kSoonNs : limit - 2 * kTicksNs;
  const bool waits = of_target.waited_for.load() == h + 1 || now < process->waited_ns + kTicksNs ||
                     now > waits_since(*process, false) + sooner;
  if (std::exchange(pair.waived, waived) != waived || pair.waived_ns == 0) {
    pair.waived_ns = now;
    const bool worked = now < process->seen_progress_ns + limit - 2 * kTicksNs;
    const bool ran = now > process->ran_since_ns + kStoppedNs;
    if (worked && ran && !announced && !waits) fault("a job that makes progress is waived");
  }
  const std::uint64_t progress_ns = std::max({pair.waived_ns, process->seen_progress_ns, both_ns});
  const bool goes_on = process->seen_progress_ns > pair.waived_ns;
  if (goes_on && !announced && !waits && now > progress_ns + kTicksNs &&
      now < progress_ns + 3 * kTicksNs) {
    fault("a job that makes progress again stays waived");
  }
}

/// A launch that has waited since before the gate closed, or that found it closed, must not pass
/// while it is closed.
World::Launched World::launched(GpuStream& stream) {
  Process& process = running();
  const int index = slot_of(process);
  if (index < 0) return {false, false};
  if (!seen_->obeys[static_cast<std::size_t>(index)]) return {false, true};
  const shm::Slot& own = slot(index);
  const auto policy = shm::Policy::unpack(own.policy.load());
  const bool on_host =
      policy.kind != shm::PolicyKind::kNone && policy.kind != shm::PolicyKind::kDevice;
  const std::uint64_t open_turn = seen_->open_turn[static_cast<std::size_t>(index)];
  const bool watched = fibers.now_ns < own.watcher_beat_ns.load() + 1'500 * kMs;
  if (on_host && own.gate.load() != 0 && open_turn < fibers.current->launch_turn && watched &&
      !process.changed) {
    broken("a launch of " + std::to_string(process.pid) + " passes its closed gate");
  }
  const bool paced = policy.kind == shm::PolicyKind::kDevice && !policy.spacing.is_time() &&
                     (own.outranked.load() & shm::kOutranked) != 0 && !process.changed;
  // Another thread's launch may come between the wait and the launch that it belongs to.
  if (paced) stream.most_since_closed = static_cast<int>(policy.spacing.count) + 1;
  return {paced, true};
}

/// A program may wait for its own later launch, and each launch may wait for 5 s for the GPU. But
/// only one does: those behind it find that the stream makes no progress.
void World::launch_returned(Process& process, GpuStream& stream, std::uint64_t took_ns) {
  const int index = slot_of(process);
  const std::uint64_t begin_ns = fibers.now_ns - took_ns;
  const bool at_open_gate = index >= 0 && seen_->closed_turn[static_cast<std::size_t>(index)] <
                                              fibers.current->launch_turn;
  const std::uint64_t stands_since_ns = std::max(begin_ns, stream.free_ns);
  if (fibers.now_ns < stands_since_ns + 4'000 * kMs || !at_open_gate ||
      process.ran_since_ns > begin_ns) {
    return;
  }
  const std::uint64_t before_ns = std::exchange(stream.gave_up_ns, fibers.now_ns);
  if (before_ns != 0 && begin_ns > before_ns)
    broken("a skipped wait is repeated: " + std::to_string(process.pid));
}

void World::check_attached() {
  for (const auto& process : processes) {
    if (!process->gone && slot_of(*process) < 0)
      broken(std::to_string(process->pid) + " is not attached");
  }
}

void World::check_end() {
  for (int i = 0; i < shm::kSlots; ++i) {
    const SlotInfo info = SlotInfo::unpack(slot(i).info.load());
    const Process* const process = client_of(i);
    const bool is_used = (board.used.load() & bit(static_cast<std::size_t>(i))) != 0;
    const std::string name = "slot " + std::to_string(i);
    if (is_used != (info.state != SlotState::kFree)) return broken(name + ": used is wrong");
    if (info.state == SlotState::kFree) {
      if (slot(i).gate.load() != 0) return broken(name + " is free and its gate closed");
      continue;
    }
    if (process == nullptr || process->gone)
      return broken(name + " of a process that is gone is not free: state " +
                    std::to_string(static_cast<int>(info.state)));
    if (info.state != SlotState::kLive)
      return broken(name + " of " + std::to_string(process->pid) + " is not live: state " +
                    std::to_string(static_cast<int>(info.state)));
    if (info.priority != 0 && slot(i).job.load() % 2 == 1)
      return broken("a job of " + std::to_string(process->pid) + " does not end");
    if (slot(i).gate.load() != 0)
      return broken("the gate of " + std::to_string(process->pid) + " stays closed");
    if (slot(i).slack_ns.load() != shm::kUnlimitedSlack)
      return broken("the slack of " + std::to_string(process->pid) + " stays limited");
    for (const GpuStream& stream : process->streams) {
      if (!stream.items.empty())
        return broken("work of " + std::to_string(process->pid) + " does not end");
    }
  }
}

}  // namespace sluice::simulation
