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
    const bool became = eventually([&] {
      return slot.slice_state.load() == static_cast<std::uint32_t>(state) &&
             slot.slice_us.load() == us;
    });
    EXPECT_TRUE(became) << shm::slice_state_name(static_cast<SliceState>(slot.slice_state.load()))
                        << ", " << slot.slice_us.load() << " us";
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

}  // namespace
}  // namespace sluice::test
