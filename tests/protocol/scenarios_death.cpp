#include "tests/protocol/parts.hpp"
#include "tests/protocol/scenarios.hpp"

namespace sluice::protocol {
namespace {

// Every death here is Mortality::kDies: found at any step, after which the other threads of the
// process take any number of steps before it is gone.

void two_live(ModelView& board) {
  attached(board, 0, 2);
  attached(board, 1, 1);
}

void three_live(ModelView& board) {
  attached(board, 0, 3);
  attached(board, 1, 2);
  attached(board, 2, 1);
}

Scenario holder_dies() {
  return {.name = "HolderDies",
          .processes = {{"holder", Mortality::kDies, 0}, {"target", {}, 1}, {"controller"}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0)}},
                     {"controller", 2, repair(0, 0)},
                     {"target's watcher", 1, {tend(1)}}},
          .setup = two_live};
}

// The slot of a dead holder goes to a client below the target, and the target holds it.
Scenario holder_slot_reused() {
  return {.name = "HolderDiesSlotReused",
          .processes = {{"holder", Mortality::kDies, 0},
                        {"target", {}, 1},
                        {"controller"},
                        {"next", {}, 0}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0)}},
                     {"controller", 2, repair(0, 0) + std::vector{reserve(0, 0)}},
                     {"next", 3, {if_ever(done(1, 3), go_live(0)), begin_job(0)}},
                     {"target's job", 1, {begin_job(1), end_job(1), begin_job(1)}}},
          .setup = two_live};
}

// A holder stalls inside settle() with old values of a slot whose client dies. The slot goes to a
// client that the holder must not hold.
Scenario target_slot_reused(std::string name, std::uint8_t priority, std::uint8_t device) {
  return {.name = std::move(name),
          .processes = {{"holder", {}, 0},
                        {"target", Mortality::kDies, 1},
                        {"controller"},
                        {"next", {}, 1}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0)}},
                     {"target's watcher", 1, {go_live(1)}},
                     {"controller", 2, repair(1, 1) + std::vector{reserve(1, priority, device)}},
                     {"next", 3, {if_ever(done(2, 3), go_live(1)), begin_job(1)}}},
          .setup = [](ModelView& board) {
            attached(board, 0, 2);
            calls::reserve(board, 1, 1, 0);
          }};
}

// The same with a second holder of the same target while the first one dies.
Scenario holder_dies_beside_holder() {
  return {.name = "HolderDiesBesideHolder",
          .processes = {{"high", {}, 0},
                        {"middle", Mortality::kDies, 1},
                        {"low", {}, 2},
                        {"controller"},
                        {"next", {}, 1}},
          .actors = {{"high's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"middle's job", 1, {begin_job(1), end_job(1)}},
                     {"controller", 3, repair(1, 1) + std::vector{reserve(1, 0)}},
                     {"next", 4, {if_ever(done(2, 3), go_live(1)), begin_job(1)}}},
          .setup = three_live};
}

// A holder dies with a pending write to the gate of a slot that is freed meanwhile. Two actors
// represent the one controller, so that it repairs in either order; this allows more than a real
// controller does.
Scenario both_die() {
  return {.name = "BothDie",
          .processes = {{"holder", Mortality::kDies, 0},
                        {"target", Mortality::kDies, 1},
                        {"controller"}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"target's job", 1, {begin_job(1), end_job(1)}},
                     {"controller for holder", 2, repair(0, 0)},
                     {"controller for target", 2, repair(1, 1)}},
          .setup = two_live};
}

// The same, and the freed slot is given out again.
Scenario both_die_and_reuse() {
  return {.name = "BothDieTargetSlotReused",
          .processes = {{"holder", Mortality::kSudden, 0},
                        {"target", Mortality::kSudden, 1},
                        {"controller"},
                        {"next", {}, 1}},
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"controller for target", 2, repair(1, 1) + std::vector{reserve(1, 0)}},
                     {"controller for holder", 2, repair(0, 0)},
                     {"next", 3, {if_ever(done(1, 3), go_live(1))}}},
          .setup = two_live};
}

Scenario dies_attaching() {
  return {.name = "DiesWhileAttaching",
          .processes = {{"holder", {}, 0}, {"target", Mortality::kDies, 1}, {"controller"}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0)}},
                     {"controller", 2, std::vector{reserve(1, 0)} + repair(1, 1)},
                     {"target", 1, {once(done(1, 1), go_live(1)), tend(1)}}},
          .setup = [](ModelView& board) { attached(board, 0, 2); }};
}

// Two holders die together, as when a whole service is killed.
Scenario two_holders_die() {
  return {.name = "TwoHoldersDie",
          .processes = {{"high", Mortality::kSudden, 0},
                        {"middle", Mortality::kSudden, 1},
                        {"low", {}, 2},
                        {"controller"}},
          .actors = {{"high's job", 0, {begin_job(0), end_job(0)}},
                     {"middle's job", 1, {begin_job(1), end_job(1)}},
                     {"controller for high", 3, repair(0, 0)},
                     {"controller for middle", 3, repair(1, 1)}},
          .setup = three_live};
}

}  // namespace

std::vector<Scenario> death_scenarios() {
  return {holder_dies(),
          holder_slot_reused(),
          target_slot_reused("TargetDiesSlotReusedAbove", 3, 0),
          target_slot_reused("TargetDiesSlotReusedBelow", 0, 0),
          target_slot_reused("TargetDiesSlotReusedElsewhere", 0, 1),
          holder_dies_beside_holder(),
          both_die(),
          both_die_and_reuse(),
          dies_attaching(),
          two_holders_die()};
}

}  // namespace sluice::protocol
