#include "tests/protocol/parts.hpp"
#include "tests/protocol/scenarios.hpp"

namespace sluice::protocol {
namespace {

/// A holder, the client that is drained, and a broker above it.
void three_live(ModelView& board) {
  attached(board, 0, 2);
  attached(board, 1, 1);
  attached(board, 2, 3);
}

// Jobs of the broker itself hold the client too, until the broker drains it.
Scenario drains_and_ends() {
  return {.name = "DrainsAndEnds",
          .processes = {{"holder", {}, 0}, {"target", {}, 1}, {"broker", {}, 2}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"broker", 2, {begin_job(2), begin_draining(2, 1), end_draining(2, 1)}}},
          .setup = three_live};
}

// A gate that closes while its client is drained makes the broker wait for itself.
Scenario drains_on() {
  return {.name = "DrainsOn",
          .processes = {{"holder", {}, 0}, {"target", {}, 1}, {"broker", {}, 2}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"broker", 2, {begin_draining(2, 1), begin_job(2)}}},
          .setup = three_live,
          .expect = [](const Memory& memory) {
            return memory[gate_word(1)] == 0 ? "" : "the gate of a drained client is closed";
          }};
}

// The owner ends the draining when it has obeyed, perhaps before the broker has settled.
Scenario owner_ends_draining() {
  return {.name = "OwnerEndsDraining",
          .processes = {{"holder", {}, 0}, {"target", {}, 1}, {"broker", {}, 2}},
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"target", 1, {end_draining(2, 1)}},
                     {"broker", 2, {begin_draining(2, 1)}}},
          .setup = three_live};
}

Scenario broker_dies_draining() {
  return {.name = "BrokerDiesDraining",
          .processes = {{"holder", {}, 0},
                        {"target", {}, 1},
                        {"broker", Mortality::kDies, 2},
                        {"controller"}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"broker", 2, {begin_job(2), begin_draining(2, 1), end_draining(2, 1)}},
                     {"controller", 3, repair(2, 2)}},
          .setup = three_live};
}

// The broker has not noticed that its client died, and that another one has the slot.
Scenario drained_slot_reused() {
  return {.name = "DrainedSlotReused",
          .processes = {{"holder", {}, 0},
                        {"target", Mortality::kDies, 1},
                        {"broker", {}, 2},
                        {"controller"},
                        {"next", {}, 1}},
          .actors = {{"broker", 2, {begin_draining(2, 1)}},
                     {"controller", 3, repair(1, 1) + std::vector{reserve(1, 0)}},
                     {"next", 4, {if_ever(done(1, 3), go_live(1))}}},
          .setup =
              [](ModelView& board) {
                three_live(board);
                calls::begin_job(board, 0);
              },
          .expect =
              [](const Memory& memory) {
                const bool next =
                    memory.info(1).generation == 1 && memory.info(1).state == shm::SlotState::kLive;
                return next && memory[draining_word(1)] != 0 ? "the next client is drained" : "";
              }};
}

}  // namespace

std::vector<Scenario> draining_scenarios() {
  return {drains_and_ends(), drains_on(), owner_ends_draining(), broker_dies_draining(),
          drained_slot_reused()};
}

}  // namespace sluice::protocol
