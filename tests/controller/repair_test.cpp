// Repairs on a board of the test's own, without processes.
#include "controller/repair.hpp"

#include "tests/support/board_test.hpp"

namespace sluice::test {
namespace {

using shm::SlotState;

class Repair : public BoardTest {
 protected:
  controller::Tally tally_;
  controller::Clients clients_{*board_, tally_};
};

// Prevents: a client that goes live while the controller finds it gone loses its slot, and another
// process gets a slot that is in use.
TEST_F(Repair, OnlyAClientThatIsStillReservedLosesItsSlot) {
  add_client(0, 0, "gone");
  set_state(0, SlotState::kReserved, 0);
  add_client(1, 0, "went live");
  for (const int slot : {0, 1}) controller::take_back_reserved(clients_, slot);
  EXPECT_EQ(clients_.info(0).state, SlotState::kFree);
  EXPECT_EQ(clients_.info(1).state, SlotState::kLive);
  EXPECT_EQ(board_->used.load(), shm::bit(1));
}

}  // namespace
}  // namespace sluice::test
