#include "tests/protocol/parts.hpp"
#include "tests/protocol/scenarios.hpp"

namespace sluice::protocol {
namespace {

// A job begins while a target attaches: the job sees the target or the target sees the job.
Scenario target_attaches() {
  return {.name = "TargetAttaches",
          .processes = {{"holder", {}, 0}, {"target", {}, 1}, {"controller"}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"controller", 2, {reserve(1, 0)}},
                     {"target's watcher", 1, {once(done(1, 1), go_live(1))}}},
          .setup = [](ModelView& board) { attached(board, 0, 2); }};
}

Scenario holder_attaches() {
  return {
      .name = "HolderAttaches",
      .processes = {{"holder", {}, 0}, {"target", {}, 1}, {"controller"}},
      .actors = {{"controller", 2, {reserve(0, 2)}},
                 {"holder's watcher", 0, {once(done(0, 1), go_live(0))}},
                 {"holder's job", 0, {once(done(1, 1), begin_job(0)), end_job(0), begin_job(0)}},
                 {"target's watcher", 1, {tend(1)}}},
      .setup = [](ModelView& board) { attached(board, 1, 0); }};
}

Scenario both_attach() {
  return {.name = "BothAttach",
          .processes = {{"holder", {}, 0}, {"target", {}, 1}, {"controller"}},
          .actors = {{"controller", 2, {reserve(0, 2), reserve(1, 0)}},
                     {"holder",
                      0,
                      {once(done(0, 1), go_live(0)), begin_job(0), end_job(0), begin_job(0)}},
                     {"target's watcher", 1, {once(done(0, 2), go_live(1))}}},
          .setup = [](ModelView&) {}};
}

// The end of one holder's job must not open the gate while the other holder's job runs.
Scenario two_holders() {
  return {.name = "TwoHolders",
          .processes = {{"high", {}, 0}, {"middle", {}, 1}, {"low", {}, 2}},
          .actors = {{"high's job", 0, {begin_job(0), end_job(0), begin_job(0), end_job(0)}},
                     {"middle's job", 1, {begin_job(1), end_job(1), begin_job(1)}}},
          .setup = [](ModelView& board) {
            attached(board, 0, 2);
            attached(board, 1, 1);
            attached(board, 2, 0);
          }};
}

Scenario two_holders_and_attach() {
  return {.name = "TwoHoldersAndAttach",
          .processes = {{"high", {}, 0}, {"middle", {}, 1}, {"low", {}, 2}, {"controller"}},
          .actors = {{"high's job", 0, {begin_job(0), end_job(0)}},
                     {"middle's job", 1, {begin_job(1)}},
                     {"controller", 3, {reserve(2, 0)}},
                     {"low's watcher", 2, {once(done(2, 1), go_live(2))}}},
          .setup = [](ModelView& board) {
            attached(board, 0, 2);
            attached(board, 1, 1);
          }};
}

Scenario equal_priorities() {
  return {.name = "EqualPriorities",
          .processes = {{"one", {}, 0}, {"other", {}, 1}, {"controller"}},
          .actors = {{"one's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"controller", 2, {reserve(1, 1)}},
                     {"other", 1, {once(done(1, 1), go_live(1)), begin_job(1)}}},
          .setup = [](ModelView& board) { attached(board, 0, 1); },
          .always = [](const Memory& memory) -> std::string {
            const bool open = memory[gate_word(0)] == 0 && memory[gate_word(1)] == 0;
            return open ? "" : "clients of equal priority hold each other";
          }};
}

std::string elsewhere_open(const Memory& memory) {
  const bool open = memory[gate_word(1)] == 0 && memory[gate_word(2)] == 0;
  return open ? "" : "a client of another device is held";
}

Scenario other_device() {
  return {.name = "OtherDevice",
          .processes = {{"holder", {}, 0}, {"elsewhere", {}, 1}, {"late", {}, 2}, {"controller"}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"controller", 3, {reserve(2, 0, 1)}},
                     {"late's watcher", 2, {once(done(1, 1), go_live(2))}}},
          .setup =
              [](ModelView& board) {
                attached(board, 0, 2, 0);
                attached(board, 1, 0, 1);
              },
          .always = elsewhere_open};
}

Scenario other_device_priority() {
  return {.name = "OtherDevicePriority",
          .processes = {{"holder", {}, 0}, {"elsewhere", {}, 1}, {"controller"}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                     {"controller", 2, {change_priority(0, 3), change_priority(1, 0)}}},
          .setup =
              [](ModelView& board) {
                attached(board, 0, 2, 0);
                attached(board, 1, 1, 1);
              },
          .always = elsewhere_open};
}

// The program launches work as soon as it has a slot, while the watcher goes live.
Scenario job_begins_before_live() {
  return {
      .name = "JobBeginsBeforeLive",
      .processes = {{"holder", {}, 0}, {"target", {}, 1}, {"controller"}},
      .actors = {{"controller", 2, {reserve(0, 2)}},
                 {"holder's watcher", 0, {once(done(0, 1), go_live(0))}},
                 {"holder's job", 0, {once(done(0, 1), begin_job(0)), end_job(0), begin_job(0)}}},
      .setup = [](ModelView& board) { attached(board, 1, 0); },
      .expect = [](const Memory& memory) -> std::string {
        return closed_by(memory, 1, 0) ? "" : "the job does not hold";
      }};
}

}  // namespace

std::vector<Scenario> job_scenarios() {
  return {target_attaches(), holder_attaches(),        both_attach(),
          two_holders(),     two_holders_and_attach(), equal_priorities(),
          other_device(),    other_device_priority(),  job_begins_before_live()};
}

}  // namespace sluice::protocol
