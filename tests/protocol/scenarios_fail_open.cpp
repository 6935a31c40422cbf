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

void three_live(ModelView& board) {
  attached(board, 0, 2);
  attached(board, 1, 1);
  attached(board, 2, 0);
}

Scenario fails_open_and_returns() {
  return {.name = "TargetFailsOpenAndReturns",
          .processes = kTwo,
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"target's watcher",
                      1,
                      {fail_open(1), keep_open(1), go_live(1), fail_open(1), go_live(1)}}},
          .setup = two_live};
}

Scenario fails_open_for_good() {
  return {.name = "TargetFailsOpenForGood",
          .processes = kTwo,
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"target's watcher", 1, {fail_open(1), go_live(1), fail_open(1)}}},
          .setup = two_live,
          .expect = [](const Memory& memory) -> std::string {
            return memory.info(1).state == SlotState::kFailedOpen ? "" : "target not failed open";
          }};
}

// A client that has failed open still closes the gates of lower-priority clients.
Scenario middle_fails_open() {
  return {.name = "MiddleFailsOpen",
          .processes = {{"high", {}, 0}, {"middle", {}, 1}, {"low", {}, 2}},
          .actors = {{"high's job", 0, {begin_job(0)}},
                     {"middle's job", 1, {begin_job(1)}},
                     {"middle's watcher", 1, {fail_open(1), go_live(1)}}},
          .setup = three_live,
          .expect = [](const Memory& memory) -> std::string {
            return closed_by(memory, 2, 1) ? "" : "low is not held by middle";
          }};
}

Scenario middle_fails_open_for_good() {
  return {.name = "MiddleFailsOpenForGood",
          .processes = {{"high", {}, 0}, {"middle", {}, 1}, {"low", {}, 2}},
          .actors = {{"high's job", 0, {begin_job(0)}},
                     {"middle's job", 1, {begin_job(1)}},
                     {"middle's watcher", 1, {fail_open(1)}}},
          .setup = three_live,
          .expect = [](const Memory& memory) -> std::string {
            return closed_by(memory, 2, 1) ? "" : "low is not held by middle";
          }};
}

Scenario two_holders_fail_open() {
  return {.name = "TwoHoldersTargetFailsOpen",
          .processes = {{"high", {}, 0}, {"middle", {}, 1}, {"low", {}, 2}},
          .actors = {{"high's job", 0, {begin_job(0)}},
                     {"middle's job", 1, {begin_job(1)}},
                     {"low's watcher", 2, {fail_open(2), go_live(2)}}},
          .setup = three_live};
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

// A launching thread fails open (its driver wait took too long) while the watcher fails open and
// comes back.
Scenario fails_open_on_two_threads() {
  return {.name = "FailsOpenOnTwoThreads",
          .processes = kTwo,
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"target's launch", 1, {fail_open(1)}},
                     {"target's watcher", 1, {fail_open(1), go_live(1)}}},
          .setup = two_live};
}

// One thread runs exit() while another begins the next job.
Scenario holder_leaves() {
  return {.name = "HolderLeavesInsideJob",
          .processes = kTwo,
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"holder's exit", 0, {leave(0)}},
                     {"target's watcher", 1, {fail_open(1), go_live(1)}}},
          .setup = two_live,
          .expect = [](const Memory& memory) { return left(memory, 0); }};
}

// One thread runs exit() while the watcher finds that the controller is gone or back.
Scenario leaves_while_failing_open() {
  return {.name = "LeavesWhileFailingOpen",
          .processes = kTwo,
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"target's exit", 1, {leave(1)}},
                     {"target's watcher", 1, {fail_open(1), go_live(1)}}},
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

std::vector<Scenario> fail_open_scenarios() {
  return {fails_open_and_returns(),     fails_open_for_good(), middle_fails_open(),
          middle_fails_open_for_good(),

          two_holders_fail_open(),      target_leaves(),       target_leaves_changing_priority(),
          fails_open_on_two_threads(),  holder_leaves(),       leaves_while_failing_open(),
          leaves_and_is_gone(),         leaves_during_attach()};
}

}  // namespace sluice::protocol
