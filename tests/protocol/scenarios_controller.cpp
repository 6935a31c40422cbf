#include "tests/protocol/parts.hpp"
#include "tests/protocol/scenarios.hpp"

namespace sluice::protocol {
namespace {

void two_live(ModelView& board) {
  attached(board, 0, 2);
  attached(board, 1, 1);
}

/// A second controller, which starts when the first is gone.
Actor successor(int process, int first, std::vector<Tenancy> tenants) {
  std::vector<Call> calls{if_ever(gone(first), adopt(tenants))};
  for (const Tenancy& tenant : tenants) calls = calls + repair_adopted(tenant);
  return {"second controller", process, calls};
}

Scenario dies_repairing() {
  return {.name = "ControllerDiesRepairing",
          .processes = {{"holder", Mortality::kDies, 0},
                        {"target", {}, 1},
                        {"first controller", Mortality::kSudden},
                        {"second controller"}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"first controller", 2, repair(0, 0)},
                     successor(3, 2, {{0, 0}, {1, 1}})},
          .setup = two_live};
}

Scenario dies_reusing() {
  return {.name = "ControllerDiesReusingSlot",
          .processes = {{"holder", Mortality::kSudden, 0},
                        {"target", {}, 1},
                        {"first controller", Mortality::kSudden},
                        {"second controller"},
                        {"next", Mortality::kNever, 0}},
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"first controller", 2, repair(0, 0) + std::vector{reserve(0, 2)}},
                     successor(3, 2, {{0, 0, 0}, {4, 0, 1}, {1, 1}}),
                     {"next", 4, {if_ever(done(1, 3), go_live(0)), begin_job(0)}}},
          .setup = two_live};
}

Scenario dies_changing_priority() {
  return {.name = "ControllerDiesChangingPriority",
          .processes = {{"holder", {}, 0},
                        {"target", {}, 1},
                        {"first controller", Mortality::kSudden},
                        {"second controller"}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0)}},
                     {"first controller", 2, {change_priority(0, 0)}},
                     successor(3, 2, {{0, 0}, {1, 1}})},
          .setup = two_live};
}

// The target's watcher runs on meanwhile.
Scenario dies_with_holder() {
  return {
      .name = "ControllerAndHolderDie",
      .processes = {{"holder", Mortality::kSudden, 0},
                    {"target", {}, 1},
                    {"first controller", Mortality::kSudden},
                    {"second controller"}},
      .actors = {{"holder's job", 0, {begin_job(0)}},
                 {"first controller", 2, repair(0, 0)},
                 successor(3, 2, {{0, 0}, {1, 1}}),
                 {"target's watcher", 1, {if_ever(gone(2), tend(1)), once(done(2, 1), tend(1))}}},
      .setup = two_live};
}

Scenario dies_reserving() {
  return {.name = "ControllerDiesReserving",
          .processes = {{"holder", {}, 0},
                        {"target", {}, 1},
                        {"first controller", Mortality::kSudden},
                        {"second controller"}},
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"first controller", 2, {reserve(1, 0)}},
                     successor(3, 2, {{0, 0}, {1, 1}}),
                     {"target's watcher", 1, {if_ever(done(1, 1), go_live(1))}}},
          .setup = [](ModelView& board) { attached(board, 0, 2); }};
}

}  // namespace

std::vector<Scenario> controller_scenarios() {
  return {dies_repairing(), dies_reusing(), dies_changing_priority(), dies_with_holder(),
          dies_reserving()};
}

}  // namespace sluice::protocol
