#include "tests/protocol/parts.hpp"
#include "tests/protocol/scenarios.hpp"

namespace sluice::protocol {
namespace {

void two_live(ModelView& board) {
  attached(board, 0, 2);
  attached(board, 1, 1);
}

void two_live_in_job(ModelView& board) {
  two_live(board);
  calls::begin_job(board, 0);
}

// max_hold opens the gate for one job; the next job closes it again.
Scenario waive_and_next_job() {
  return {.name = "WaiveAndNextJob",
          .processes = {{"holder", {}, 0}, {"target", {}, 1}},
          .actors = {{"holder's job",
                      0,
                      {begin_job(0), end_job(0), begin_job(0), end_job(0), begin_job(0)}},
                     {"target's watcher", 1, {waive(1, 0), waive(1, 0)}}},
          .setup = two_live};
}

Scenario waive_and_adoption() {
  return {.name = "WaiveAndAdoption",
          .processes = {{"holder", {}, 0}, {"target", {}, 1}, {"controller"}},
          .actors = {{"holder's job", 0, {end_job(0), begin_job(0)}},
                     {"target's watcher", 1, {waive(1, 0)}},
                     {"controller", 2, {adopt({{0, 0}, {1, 1}})}}},
          .setup = two_live_in_job};
}

Scenario waive_and_priority() {
  return {.name = "WaiveAndPriority",
          .processes = {{"holder", {}, 0}, {"target", {}, 1}, {"controller"}},
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"target's watcher", 1, {waive(1, 0)}},
                     {"controller", 2, {change_priority(0, 3)}}},
          .setup = two_live};
}

// A waived job of a dead holder has no effect on the next client of its slot.
Scenario waived_holder_slot_reused() {
  return {.name = "WaivedHolderSlotReused",
          .processes = {{"holder", Mortality::kDies, 0},
                        {"target", {}, 1},
                        {"controller"},
                        {"next", {}, 0}},
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"target's watcher", 1, {waive(1, 0)}},
                     {"controller", 2, repair(0, 0) + std::vector{reserve(0, 2)}},
                     {"next", 3, {if_ever(done(2, 3), go_live(0)), begin_job(0)}}},
          .setup = two_live,
          .expect = [](const Memory& memory) -> std::string {
            const shm::SlotInfo next = memory.info(0);
            if (next.generation == 0 || next.state != shm::SlotState::kLive) return {};
            const std::uint64_t job = memory[job_word(0)];
            if (job % 2 == 0) return "the new client's job is not counted";
            const bool waived = memory[waived_word(1, 0)] == job;  // the watcher was late
            return closed_by(memory, 1, 0) != waived ? "" : "the new client's job does not hold";
          }};
}

// A new client in the slot of a target that waived a job still obeys that job.
Scenario waiving_target_slot_reused() {
  return {.name = "WaivingTargetSlotReused",
          .processes = {{"holder", {}, 0},
                        {"target", Mortality::kDies, 1},
                        {"controller"},
                        {"next", {}, 1}},
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"target's watcher", 1, {waive(1, 0)}},
                     {"controller", 2, repair(1, 1) + std::vector{reserve(1, 0)}},
                     {"next", 3, {if_ever(done(2, 3), go_live(1))}}},
          .setup = two_live,
          .expect = [](const Memory& memory) -> std::string {
            const shm::SlotInfo next = memory.info(1);
            if (next.generation == 0 || next.state != shm::SlotState::kLive) return {};
            return closed_by(memory, 1, 0) ? "" : "the new client does not obey the job";
          }};
}

// A holder is stopped inside a job. Its targets run after max_hold.
Scenario holder_stopped() {
  return {.name = "HolderStopped",
          .processes = {{"holder", Mortality::kStops, 0}, {"target", {}, 1}, {"controller"}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"target's watcher", 1, {go_live(1), if_ever(stopped(0), waive(1, 0))}},
                     {"controller", 2, {change_priority(1, 0)}}},
          .setup = two_live};
}

// A holder that is stopped inside settle() may have closed a gate that must stay open.
Scenario holder_stopped_target_open() {
  return {.name = "HolderStoppedTargetOpen",
          .processes = {{"holder", Mortality::kStops, 0}, {"target", {}, 1}, {"leaver", {}, 2}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0)}},
                     {"target's exit", 1, {leave(1)}},
                     {"leaver's exit", 2, {leave(2)}}},
          .setup = [](ModelView& board) {
            attached(board, 0, 2);
            attached(board, 1, 1);
            attached(board, 2, 0);
          }};
}

Scenario holder_stopped_slot_reused() {
  return {.name = "HolderStoppedTargetSlotReused",
          .processes = {{"holder", Mortality::kStops, 0},
                        {"target", Mortality::kSudden, 1},
                        {"controller"},
                        {"next", {}, 1}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0)}},
                     {"controller", 2, repair(1, 1) + std::vector{reserve(1, 3)}},
                     {"next",
                      3,
                      {if_ever(done(1, 3), go_live(1)), begin_job(1),
                       if_ever(stopped(0), waive(1, 0))}}},
          .setup = two_live};
}

// The controller is stopped at any step: a client that leaves stays open.
Scenario controller_stopped() {
  return {.name = "ControllerStopped",
          .processes = {{"holder", {}, 0}, {"target", {}, 1}, {"controller", Mortality::kStops}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"target's exit", 1, {if_ever(stopped(2), leave(1))}},
                     {"controller", 2, {change_priority(0, 0), change_priority(0, 2)}}},
          .setup = two_live};
}

}  // namespace

std::vector<Scenario> hold_scenarios() {
  return {waive_and_next_job(),         waive_and_adoption(),         waive_and_priority(),
          waived_holder_slot_reused(),  waiving_target_slot_reused(), holder_stopped(),
          holder_stopped_target_open(), holder_stopped_slot_reused(), controller_stopped()};
}

}  // namespace sluice::protocol
