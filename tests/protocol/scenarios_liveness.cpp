#include "tests/protocol/parts.hpp"
#include "tests/protocol/scenarios.hpp"

namespace sluice::protocol {
namespace {

using shm::SlotState;

void two_live(ModelView& board) {
  attached(board, 0, 2);
  attached(board, 1, 1);
}

void three_live(ModelView& board) {
  attached(board, 0, 3);
  attached(board, 1, 2);
  attached(board, 2, 1);
}

std::string found_and_opened(const Memory& memory) {
  const Life holder = memory.life(0);
  if (holder != Life::kGone) return {};
  if (memory[gate_word(1)] != 0) return "held by a dead holder";
  return memory.info(0).state == SlotState::kDead ? "" : "the dead holder is not marked";
}

// There is no controller: the target finds the death and opens its own gate.
Scenario holder_dies_unwatched() {
  return {.name = "HolderDiesWithoutController",
          .processes = {{"holder", Mortality::kDies, 0}, {"target", {}, 1}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"target's watcher",
                      1,
                      {if_ever(found_dead(0), tend(1)), if_ever(gone(0), tend(1))}}},
          .setup = two_live,
          .expect = found_and_opened};
}

// The holder is killed while it leaves.
Scenario leaving_holder_dies() {
  return {.name = "LeavingHolderDiesWithoutController",
          .processes = {{"holder", Mortality::kSudden, 0}, {"target", {}, 1}},
          .actors = {{"holder's exit", 0, {leave(0)}},
                     {"target's watcher", 1, {if_ever(gone(0), tend(1))}}},
          .setup =
              [](ModelView& board) {
                two_live(board);
                calls::begin_job(board, 0);
              },
          .expect = [](const Memory& memory) -> std::string {
            const bool left = memory.info(0).state == SlotState::kLeaving;
            if (!left) return found_and_opened(memory);
            return memory[gate_word(1)] == 0 ? "" : "held by a holder that left";
          }};
}

// Two targets find the death at the same time, and one of them holds the other.
Scenario two_targets_find_it() {
  return {.name = "TwoTargetsFindTheDeath",
          .processes = {{"high", Mortality::kSudden, 0}, {"middle", {}, 1}, {"low", {}, 2}},
          .actors = {{"high's job", 0, {begin_job(0)}},
                     {"middle's job", 1, {begin_job(1)}},
                     {"middle's watcher", 1, {if_ever(gone(0), tend(1))}},
                     {"low's watcher", 2, {if_ever(gone(0), tend(2))}}},
          .setup = three_live,
          .expect = found_and_opened};
}

// A target looks at a slot while it changes hands: the new client must not be taken for dead.
Scenario probed_slot_reused() {
  return {.name = "ProbedSlotReused",
          .processes = {{"holder", Mortality::kDies, 0},
                        {"target", {}, 1},
                        {"controller"},
                        {"next", {}, 0, 1}},
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"target's watcher", 1, {tend(1), tend(1)}},
                     {"controller", 2, repair(0, 0) + std::vector{reserve(0, 2)}},
                     {"next", 3, {if_ever(done(2, 3), go_live(0)), begin_job(0)}}},
          .setup = two_live,
          .expect = [](const Memory& memory) -> std::string {
            const shm::SlotInfo next = memory.info(0);
            if (next.generation == 0) return {};
            if (next.state == SlotState::kDead) return "the new client is marked dead";
            if (next.state != SlotState::kLive) return {};
            return closed_by(memory, 1, 0) ? "" : "the new client's job does not hold";
          }};
}

// The same for a client that attaches and has not taken its mutex yet.
Scenario probed_while_attaching() {
  return {.name = "ProbedWhileAttaching",
          .processes = {{"holder", {}, 0}, {"target", {}, 1}, {"controller"}},
          .actors = {{"controller", 2, {reserve(0, 2), rank(1)}},
                     {"holder", 0, {once(done(0, 1), go_live(0)), begin_job(0)}},
                     {"target's watcher", 1, {tend(1), tend(1)}}},
          .setup = [](ModelView& board) { attached(board, 1, 1); },
          .expect = [](const Memory& memory) -> std::string {
            return closed_by(memory, 1, 0) ? "" : "the job does not hold";
          }};
}

// The controller changes the priority of a client while a target marks it as dead.
Scenario marked_while_priority_changes() {
  return {
      .name = "MarkedWhilePriorityChanges",
      .processes = {{"holder", Mortality::kSudden, 0}, {"target", {}, 1}, {"controller"}},
      .actors = {{"holder's job", 0, {begin_job(0)}},
                 {"controller", 2, {change_priority(0, 3)}},
                 {"target's watcher", 1, {if_ever(gone(0), tend(1)), if_ever(gone(0), tend(1))}}},
      .setup = two_live,
      .expect = found_and_opened};
}

// The holder dies while the target and the controller both look after it.
Scenario target_and_controller() {
  return {.name = "TargetAndControllerFindTheDeath",
          .processes = {{"holder", Mortality::kDies, 0}, {"target", {}, 1}, {"controller"}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0)}},
                     {"controller", 2, repair(0, 0)},
                     {"target's watcher", 1, {if_ever(found_dead(0), tend(1)), tend(1)}}},
          .setup = two_live};
}

std::vector<Call> watch_stopped(int process) {
  return {if_ever(stopped(process), waive(1, 0)), if_ever(stopped(process), tend(1)),
          if_ever(continued(process), honour(1, 0))};
}

// A holder is stopped at any step and beats again later: its job counts again.
Scenario holder_pauses() {
  return {.name = "HolderPauses",
          .processes = {{"holder", Mortality::kPauses, 0}, {"target", {}, 1}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"target's watcher", 1, watch_stopped(0)}},
          .setup = two_live,
          .expect = [](const Memory& memory) -> std::string {
            const bool closed = memory[gate_word(1)] != 0;
            if (memory.life(0) == Life::kStopped) return closed ? "held by a stopped holder" : "";
            return closed ? "" : "the job of the continued holder does not hold";
          }};
}

// The same while the priority of the holder changes.
Scenario holder_pauses_and_changes() {
  return {.name = "HolderPausesPriorityChanges",
          .processes = {{"holder", Mortality::kPauses, 0}, {"target", {}, 1}, {"controller"}},
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"target's watcher", 1, watch_stopped(0)},
                     {"controller", 2, {change_priority(0, 3)}}},
          .setup = two_live};
}

// A watcher that gets no processor looks like a stopped process: the holder runs on meanwhile.
Scenario holder_seems_stopped() {
  return {.name = "HolderSeemsStopped",
          .processes = {{"holder", {}, 0}, {"target", {}, 1}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"target's watcher",
                      1,
                      {waive(1, 0), honour(1, 0), tend(1), waive(1, 0), honour(1, 0)}}},
          .setup = two_live};
}

// A stopped holder is killed, and its slot is given to another.
Scenario stopped_holder_killed() {
  return {.name = "WaivedHolderDiesWithoutTick",
          .processes = {{"holder", Mortality::kSudden, 0},
                        {"target", {}, 1},
                        {"controller"},
                        {"next", {}, 0, 1}},
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"target's watcher", 1, {waive(1, 0), tend(1), honour(1, 0)}},
                     {"controller", 2, repair(0, 0) + std::vector{reserve(0, 2)}},
                     {"next", 3, {if_ever(done(2, 3), go_live(0)), begin_job(0)}}},
          .setup = two_live};
}

// A newcomer attaches above while the one that was above leaves.
Scenario newcomer_above() {
  return {.name = "OutrankedByANewcomer",
          .processes = {{"above", {}, 0}, {"target", {}, 1}, {"controller"}, {"newcomer", {}, 2}},
          .actors = {{"above's exit", 0, {leave(0)}},
                     {"target's watcher", 1, {rank(1), rank(1)}},
                     {"controller", 2, {reserve(2, 2), rank(1)}},
                     {"newcomer", 3, {once(done(2, 2), go_live(2))}}},
          .setup =
              [](ModelView& board) {
                two_live(board);
                calls::settle_outranked(board, 1);
              },
          .expect = [](const Memory& memory) -> std::string {
            return memory[outranked_word(1)] != 0 ? "" : "the target does not pace";
          }};
}

// The controller raises and lowers a priority while the target looks.
Scenario rank_and_priority(std::string name, std::uint8_t from, std::uint8_t to) {
  return {.name = std::move(name),
          .processes = {{"holder", {}, 0}, {"target", {}, 1}, {"controller"}},
          .actors = {{"target's watcher", 1, {rank(1), rank(1)}},
                     {"controller", 2, {change_priority(0, to), rank(0), rank(1)}}},
          .setup =
              [from](ModelView& board) {
                attached(board, 0, from);
                attached(board, 1, 1);
                calls::settle_outranked(board, 1);
              },
          .expect = [to](const Memory& memory) -> std::string {
            return (memory[outranked_word(1)] != 0) == (to > 1) ? "" : "the rank is an old one";
          }};
}

// Clients of another device, of equal priority, and dead ones outrank nobody; reserved ones do.
Scenario ranks() {
  return {.name = "OutrankedByWhom",
          .processes = {{"dead", Mortality::kSudden, 0},
                        {"one", {}, 1},
                        {"equal", {}, 2},
                        {"elsewhere", {}, 3}},
          .actors = {{"one's watcher", 1, {tend(1), rank(1)}}},
          .setup = [](ModelView& board) {
            attached(board, 0, 2, 0);
            attached(board, 1, 1, 0);
            attached(board, 2, 1, 0);
            attached(board, 3, 9, 1);
          }};
}

}  // namespace

std::vector<Scenario> liveness_scenarios() {
  return {holder_dies_unwatched(),
          leaving_holder_dies(),
          two_targets_find_it(),
          probed_slot_reused(),
          probed_while_attaching(),
          marked_while_priority_changes(),
          target_and_controller(),
          holder_pauses(),
          holder_pauses_and_changes(),
          holder_seems_stopped(),
          stopped_holder_killed(),
          newcomer_above(),
          rank_and_priority("OutrankedAfterARise", 0, 2),
          rank_and_priority("OutrankedAfterAFall", 2, 0),
          ranks()};
}

}  // namespace sluice::protocol
