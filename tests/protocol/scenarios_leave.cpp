#include "tests/protocol/parts.hpp"
#include "tests/protocol/scenarios.hpp"

namespace sluice::protocol {
namespace {

using shm::SlotState;

const std::vector<Process> kTwo{{"holder", {}, 0}, {"target", {}, 1}, {"controller"}};

void two_live(ModelView& board) {
  attached(board, 0, 2);
  attached(board, 1, 0);
}

std::string left(const Memory& memory, int slot) {
  return memory.info(slot).state == SlotState::kLeaving ? "" : "the slot is not leaving";
}

Scenario target_leaves() {
  return {.name = "TargetLeaves",
          .processes = kTwo,
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"target's exit", 1, {leave(1)}}},
          .setup = two_live,
          .expect = [](const Memory& memory) { return left(memory, 1); }};
}

Scenario target_leaves_changing_priority() {
  return {.name = "TargetLeavesChangingPriority",
          .processes = kTwo,
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0)}},
                     {"target's exit", 1, {leave(1)}},
                     {"controller", 2, {change_priority(1, 1)}}},
          .setup = two_live,
          .expect = [](const Memory& memory) { return left(memory, 1); }};
}

// One thread runs exit() while another begins the next job.
Scenario holder_leaves() {
  return {.name = "HolderLeavesInsideJob",
          .processes = kTwo,
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"holder's exit", 0, {leave(0)}},
                     {"target's watcher", 1, {tend(1)}}},
          .setup = two_live,
          .expect = [](const Memory& memory) { return left(memory, 0); }};
}

// One thread runs exit() while the watcher corrects the gate.
Scenario leaves_while_tending() {
  return {.name = "LeavesWhileTending",
          .processes = kTwo,
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"target's exit", 1, {leave(1)}},
                     {"target's watcher", 1, {tend(1)}}},
          .setup = two_live,
          .expect = [](const Memory& memory) { return left(memory, 1); }};
}

// The threads of an exiting process are killed between any two steps; then the slot is repaired.
Scenario leaves_and_is_gone() {
  return {.name = "HolderLeavesAndIsGone",
          .processes = {{"holder", Mortality::kDies, 0}, {"target", {}, 1}, {"controller"}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0)}},
                     {"holder's exit", 0, {leave(0)}},
                     {"controller", 2, repair(0, 0)}},
          .setup = two_live};
}

Scenario leaves_during_attach() {
  return {.name = "LeavesBeforeLive",
          .processes = kTwo,
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"controller", 2, {reserve(1, 0)}},
                     {"target's watcher", 1, {once(done(1, 1), go_live(1))}},
                     {"target's exit", 1, {once(done(1, 1), leave(1))}}},
          .setup = [](ModelView& board) { attached(board, 0, 2); },
          .expect = [](const Memory& memory) { return left(memory, 1); }};
}

}  // namespace

std::vector<Scenario> leave_scenarios() {
  return {target_leaves(),      target_leaves_changing_priority(),
          holder_leaves(),      leaves_while_tending(),
          leaves_and_is_gone(), leaves_during_attach()};
}

}  // namespace sluice::protocol
