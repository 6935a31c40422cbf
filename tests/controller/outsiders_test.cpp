// Programs on the GPU that have no slot, as the board shows them.
#include "controller/outsiders.hpp"

#include "tests/support/board_test.hpp"

namespace sluice::controller::test {
namespace {

class OutsidePrograms : public sluice::test::BoardTest {
 protected:
  std::uint32_t outside(std::size_t device) { return board_->devices[device].outside.load(); }
};

TEST_F(OutsidePrograms, AreCountedByDevice) {
  Outsiders::show(*board_, {{0, 41, {}, {}, false}, {2, 42, {}, {}, false}, {0, 0, {}, {}, false}});
  EXPECT_EQ(outside(0), 2U);
  EXPECT_EQ(outside(1), 0U);
  EXPECT_EQ(outside(2), 1U);
  Outsiders::show(*board_, {{99, 41, {}, {}, false}, {-1, 42, {}, {}, false}});
  EXPECT_EQ(outside(0) + outside(2), 0U) << "they have ended";
}

TEST_F(OutsidePrograms, MatterWhileAClientOutranksAnother) {
  EXPECT_FALSE(Outsiders::matter(*board_));
  add_client(3, 0, "train").outranked.store(shm::kOrdered);
  EXPECT_FALSE(Outsiders::matter(*board_));
  slot(3).outranked.store(shm::kOutranked);
  EXPECT_TRUE(Outsiders::matter(*board_));
  set_state(3, shm::SlotState::kDead, 0);
  EXPECT_FALSE(Outsiders::matter(*board_));
}

}  // namespace
}  // namespace sluice::controller::test
