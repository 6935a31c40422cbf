// The time slices of programs, end to end on the simulated GPU.
#include "shm/slice.hpp"

#include "shm/messages.hpp"
#include "tests/support/change_request.hpp"
#include "tests/support/end_to_end_test.hpp"
#include "tests/support/requests.hpp"

namespace sluice::test {
namespace {

using shm::SliceState;

class TimeSlices : public SimulatedSessionTest {
 protected:
  bool becomes(const Program& program, SliceState state, std::uint32_t us) {
    const Look board = look();
    const shm::Slot& slot = board.slot(slot_of(board, program.pid()));
    const auto is = [&] {
      return slot.slice_state.load() == static_cast<std::uint32_t>(state) &&
             slot.slice_us.load() == us;
    };
    const bool became = eventually(is, kProgramPatience);
    EXPECT_TRUE(became) << shm::slice_state_name(static_cast<SliceState>(slot.slice_state.load()))
                        << ", share " << slot.gpu_share.load() << ", covered "
                        << slot.turn.covered.load() << ", takes " << slot.turn.takes.load() << ", "
                        << slot.slice_us.load() << " us";
    return became;
  }
  shm::Reply ask_for(const Program& program, std::uint32_t slice) {
    const Look board = look();
    const int slot = slot_of(board, program.pid());
    shm::Request request =
        change_of({slot, shm::SlotInfo::unpack(board.slot(slot).info.load()).generation},
                  board.board().board_id.load());
    request.slice = slice;
    const auto connection = connect_to(session_);
    return ask_controller(connection.get(), request);
  }
};

// Prevents: a slice that outlives its reason, or a setting that is shown and not made.
TEST_F(TimeSlices, FollowTheUserAndTheNeighbours) {
  Program& training = start({0, "device:4", {"SLUICE_SLICE=100us"}});
  EXPECT_TRUE(becomes(training, SliceState::kShort, 100));
  EXPECT_EQ(ask_for(training, shm::kSliceOff).status, shm::ReplyStatus::kOk);
  EXPECT_TRUE(becomes(training, SliceState::kOff, 0));
  EXPECT_EQ(ask_for(training, 250).status, shm::ReplyStatus::kOk);
  EXPECT_TRUE(becomes(training, SliceState::kShort, 250));
  EXPECT_EQ(ask_for(training, 5).status, shm::ReplyStatus::kBadRequest);
  EXPECT_EQ(ask_for(training, shm::kKeepSlice).status, shm::ReplyStatus::kOk);
  EXPECT_TRUE(becomes(training, SliceState::kShort, 250));
  critical_->signal(SIGKILL);
  critical_->wait();
  EXPECT_TRUE(becomes(training, SliceState::kDriver, 0));
}

// A job of 3 ms that waits for nobody in its middle, next to kernels of 5 ms: found by the rule.
TEST_F(TimeSlices, AreShortNextToAServerThatKeepsTheGpuBusy) {
  Program& training = start_best_effort("device:4");
  training.ask("loop 1 5000 4");
  critical_->ask("jobs 3000");
  EXPECT_TRUE(becomes(training, SliceState::kShort, 100));
  critical_->ask("halt");
}

// Prevents: two programs with short slices that pay for each switch between them, and the driver's
// slices where one of the two runs at a time.
TEST_F(TimeSlices, OfSeveralBusyProgramsAreShortBecauseTheyTakeTurns) {
  Program& one = start({0, "device:200us"});
  Program& other = start({0, "device:200us"});
  for (Program* program : {&one, &other}) program->ask("jobs 2000");
  critical_->ask("jobs 1000 50000");
  EXPECT_TRUE(becomes(one, SliceState::kShort, 100) && becomes(other, SliceState::kShort, 100));
  const Look board = look();
  for (Program* program : {&one, &other}) {
    const shm::Slot& its = board.slot(slot_of(board, program->pid()));
    EXPECT_TRUE(eventually([&] { return its.turn.takes.load() != 0; })) << "both use the GPU";
    EXPECT_TRUE(flows(*program));
  }
  other.ask("halt");
  const shm::Slot& slot = board.slot(slot_of(board, one.pid()));
  EXPECT_TRUE(eventually([&] { return slot.turn.takes.load() == 0; })) << "the other one is idle";
  critical_->ask("halt");
}

}  // namespace
}  // namespace sluice::test
