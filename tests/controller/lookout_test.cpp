// What the board shows of a look: programs on the GPU that have no slot, and what was gained.
#include "controller/lookout.hpp"

#include <signal.h>

#include "shm/gain.hpp"
#include "shm/target.hpp"
#include "tests/support/board_test.hpp"
#include "tests/support/controller.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/fake_client.hpp"
#include "tests/support/look.hpp"

namespace sluice::controller::test {
namespace {

class OutsidePrograms : public sluice::test::BoardTest {
 protected:
  std::uint32_t outside(std::size_t device) { return board_->devices[device].outside.load(); }
};

TEST_F(OutsidePrograms, AreShownByDevice) {
  Lookout::show(*board_, {{0, {2, 1}}, {2, {0, 1}}, {99, {1, 1}}, {-1, {1, 1}}});
  EXPECT_EQ(shm::OutsideWord::unpack(outside(0)), (shm::OutsideWord{2, 1}));
  EXPECT_EQ(outside(1), 0U);
  EXPECT_EQ(shm::OutsideWord::unpack(outside(2)), (shm::OutsideWord{0, 1}));
  Lookout::show(*board_, {});
  EXPECT_EQ(outside(0) + outside(2), 0U) << "they have ended";
}

TEST_F(OutsidePrograms, MatterWhileAClientOutranksAnother) {
  EXPECT_FALSE(Lookout::matter(*board_));
  add_client(3, 0, "train").outranked.store(shm::kOrdered);
  EXPECT_FALSE(Lookout::matter(*board_));
  slot(3).outranked.store(shm::kOutranked);
  EXPECT_TRUE(Lookout::matter(*board_));
  set_state(3, shm::SlotState::kDead, 0);
  EXPECT_FALSE(Lookout::matter(*board_));
}

// Prevents: what a program took next to somebody outside counts as its time alone.
TEST_F(OutsidePrograms, MatterToATimeAlone) {
  shm::Slot& server = add_client(3, 5, "serve");
  server.target.store(shm::parse_target("p99=5ms")->pack());
  EXPECT_FALSE(Lookout::matter(*board_));
  server.target.store(shm::parse_target("step p99=1.2x")->pack());
  EXPECT_TRUE(Lookout::matter(*board_));
}

class GainOnTheBoard : public sluice::test::RunningControllerTest {};

// Prevents: a line that begins anew with each controller, or that nobody ever writes.
TEST_F(GainOnTheBoard, GrowsAndOutlivesAController) {
  const sluice::test::FakeClient client(session_, 5);
  const sluice::test::Look look(session_);
  const auto gain = [&] { return shm::gain_words(look.board()).load(); };
  ASSERT_TRUE(sluice::test::eventually([&] { return gain().shared_ns != 0; }));
  const shm::Gain before = gain();
  controller_->signal(SIGKILL);
  controller_->wait();
  controller_ = start_controller();
  EXPECT_TRUE(sluice::test::eventually([&] { return gain().shared_ns > before.shared_ns; }));
  EXPECT_EQ(gain().since_ns, before.since_ns);
}

}  // namespace
}  // namespace sluice::controller::test
