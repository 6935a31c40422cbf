#include "tests/protocol/parts.hpp"
#include "tests/protocol/scenarios.hpp"

namespace sluice::protocol {
namespace {

const std::vector<Process> kTwo{{"holder", {}, 0}, {"target", {}, 1}, {"controller"}};

Scenario holder_changes(std::string name, std::uint8_t from, std::uint8_t to) {
  return {.name = std::move(name),
          .processes = kTwo,
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"controller", 2, {change_priority(0, to)}}},
          .setup = [from](ModelView& board) {
            attached(board, 0, from);
            attached(board, 1, 1);
          }};
}

// The target's watcher, the third writer of the bit, settles at the same time.
Scenario holder_lowered_target_tends() {
  return {.name = "HolderLoweredTargetTends",
          .processes = kTwo,
          .actors = {{"holder's job", 0, {end_job(0), begin_job(0)}},
                     {"controller", 2, {change_priority(0, 0)}},
                     {"target's watcher", 1, {tend(1)}}},
          .setup = [](ModelView& board) {
            attached(board, 0, 2);
            attached(board, 1, 1);
            calls::begin_job(board, 0);
          }};
}

Scenario holder_raised_target_attaches() {
  return {.name = "HolderRaisedTargetAttaches",
          .processes = kTwo,
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"controller", 2, {change_priority(0, 2)}},
                     {"target's watcher", 1, {go_live(1)}}},
          .setup = [](ModelView& board) {
            attached(board, 0, 0);
            calls::reserve(board, 1, 1, 0);
          }};
}

// When the target rises above its old holder, the target's own job closes the holder's gate at
// once.
Scenario target_raised_above() {
  return {.name = "TargetRaisedAboveHolder",
          .processes = kTwo,
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"target's job", 1, {begin_job(1), end_job(1), begin_job(1)}},
                     {"controller", 2, {change_priority(1, 2)}}},
          .setup = [](ModelView& board) {
            attached(board, 0, 1);
            attached(board, 1, 0);
          }};
}

// A word that changes and changes back must not hide the changes in between.
Scenario there_and_back(std::string name, std::uint8_t from, std::uint8_t to) {
  return {.name = std::move(name),
          .processes = kTwo,
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"controller", 2, {change_priority(0, to), change_priority(0, from)}}},
          .setup = [from](ModelView& board) {
            attached(board, 0, from);
            attached(board, 1, 1);
          }};
}

Scenario both_change() {
  return {.name = "BothChangePriority",
          .processes = {{"high", {}, 0}, {"middle", {}, 1}, {"low", {}, 2}, {"controller"}},
          .actors = {{"high's job", 0, {begin_job(0), end_job(0)}},
                     {"middle's job", 1, {begin_job(1)}},
                     {"controller", 3, {change_priority(0, 0), change_priority(2, 3)}}},
          .setup = [](ModelView& board) {
            attached(board, 0, 2);
            attached(board, 1, 1);
            attached(board, 2, 0);
          }};
}

Scenario change_of_reserved() {
  return {.name = "PriorityChangesDuringAttach",
          .processes = kTwo,
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"controller", 2, {reserve(1, 3), change_priority(1, 0)}},
                     {"target's watcher", 1, {once(done(1, 1), go_live(1))}}},
          .setup = [](ModelView& board) { attached(board, 0, 2); }};
}

}  // namespace

std::vector<Scenario> priority_scenarios() {
  return {holder_changes("HolderLowered", 2, 0),
          holder_changes("HolderRaised", 0, 2),
          holder_lowered_target_tends(),
          holder_raised_target_attaches(),
          target_raised_above(),
          there_and_back("PriorityDownAndBack", 2, 0),
          there_and_back("PriorityUpAndBack", 0, 2),
          both_change(),
          change_of_reserved()};
}

}  // namespace sluice::protocol
