#include "tests/protocol/parts.hpp"
#include "tests/protocol/scenarios.hpp"

namespace sluice::protocol {
namespace {

using shm::SlotState;

/// The owner of slot 1 is the node service. The process of the client makes no call.
void holder_and_reader(ModelView& board) {
  attached(board, 0, 2);
  attached_reader(board, 1);
}

const std::vector<Call> kJobs{begin_job(0), end_job(0), begin_job(0)};

Scenario attaches() {
  return {.name = "ReaderAttaches",
          .processes = {{"holder", {}, 0}, {"reader", {}, 1}, {"service"}},
          .actors = {{"holder's job", 0, kJobs}, {"service", 2, {reserve_reader(1), go_live(1)}}},
          .setup = [](ModelView& board) { attached(board, 0, 2); }};
}

Scenario leaves() {
  return {.name = "ReaderLeaves",
          .processes = {{"holder", {}, 0}, {"reader", {}, 1}, {"service"}},
          .actors = {{"holder's job", 0, kJobs}, {"service", 2, {leave(1), tend_readers(-1)}}},
          .setup = holder_and_reader};
}

Scenario waives() {
  return {.name = "ReaderWaives",
          .processes = {{"holder", {}, 0}, {"reader", {}, 1}, {"service"}},
          .actors = {{"holder's job", 0, kJobs}, {"service", 2, {waive(1, 0), honour(1, 0)}}},
          .setup = holder_and_reader};
}

/// The service dies in the middle of what it does for the reader, which lives on.
Scenario service_dies(const char* name, std::vector<Call> calls) {
  return {.name = name,
          .processes = {{"holder", {}, 0},
                        {"reader", {}, 1},
                        {"first service", Mortality::kSudden},
                        {"second service"}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0)}},
                     {"first service", 2, std::move(calls)},
                     {"second service", 3, {if_ever(gone(2), adopt({{0, 0}, {1, 1}}))}}},
          .setup = holder_and_reader};
}

// There is no service: another client that may write opens the reader's gate.
Scenario holder_dies_without_service() {
  return {
      .name = "HolderOfReaderDiesWithoutService",
      .processes = {{"holder", Mortality::kDies, 0}, {"reader", {}, 1}, {"other", {}, 2}},
      .actors = {{"holder's job", 0, {begin_job(0), end_job(0), begin_job(0)}},
                 {"other's watcher",
                  2,
                  {if_ever(found_dead(0), tend_readers(2)), if_ever(gone(0), tend_readers(2))}}},
      .setup =
          [](ModelView& board) {
            holder_and_reader(board);
            attached(board, 2, 2);
            board.outranked(1).store(1);  // no service lowers or raises it
          },
      .expect =
          [](const Memory& memory) {
            const bool held = memory.life(0) == Life::kGone && memory[gate_word(1)] != 0;
            return held ? "the reader is held by a dead holder" : "";
          }};
}

Scenario tended_by_two() {
  return {.name = "ReaderTendedByTwo",
          .processes = {{"holder", {}, 0}, {"reader", {}, 1}, {"other", {}, 2}, {"service"}},
          .actors = {{"holder's job", 0, {begin_job(0), end_job(0)}},
                     {"other's watcher", 2, {tend_readers(2)}},
                     {"service", 3, {tend_readers(-1)}}},
          .setup = [](ModelView& board) {
            holder_and_reader(board);
            attached(board, 2, 0);
          }};
}

// Others look at the slot meanwhile: they must not take the next client for dead.
Scenario slot_reused(const char* name, bool reader_first) {
  return {.name = name,
          .processes = {{"holder", {}, 0},
                        {"first", Mortality::kDies, 1},
                        {"service"},
                        {"next", {}, 1, 1}},
          .actors = {{"holder's job", 0, {begin_job(0)}},
                     {"holder's watcher", 0, {tend(0)}},
                     {"service", 2,
                      repair(1, 1) + std::vector{reader_first ? reserve(1, 1) : reserve_reader(1)}},
                     // For the next reader, the service makes this call.
                     {"next", reader_first ? 3 : 2, {if_ever(done(2, 3), go_live(1))}}},
          .setup =
              [reader_first](ModelView& board) {
                attached(board, 0, 2);
                if (reader_first) attached_reader(board, 1);
                if (!reader_first) attached(board, 1, 1);
              },
          .expect =
              [](const Memory& memory) {
                const bool next = memory.info(1).generation == 1;
                const bool dead = memory.info(1).state == SlotState::kDead;
                return next && dead ? "the next client is marked dead" : "";
              }};
}

}  // namespace

std::vector<Scenario> reader_scenarios() {
  return {attaches(),
          leaves(),
          waives(),
          service_dies("ServiceDiesWaivingForReader", {waive(1, 0), honour(1, 0)}),
          service_dies("ServiceDiesLeavingForReader", {leave(1)}),
          holder_dies_without_service(),
          tended_by_two(),
          slot_reused("ReaderDiesSlotReusedByWriter", true),
          slot_reused("WriterDiesSlotReusedByReader", false)};
}

}  // namespace sluice::protocol
