// Which client holds which: priorities, several critical processes, several devices.
#include <cstdlib>

#include "shm/gates.hpp"
#include "tests/support/end_to_end_test.hpp"

namespace sluice::test {
namespace {

using shm::bit;

class Priorities : public EndToEndTest {
 protected:
  void SetUp() override {
    EndToEndTest::SetUp();
    start_controller();
  }
  Program& start_working(int priority) {
    Program& program = start({priority, "device:4"});
    program.ask("loop 1 100 64");
    EXPECT_TRUE(flows(program));
    return program;
  }
};

// With three priorities, the top holds the middle and the middle holds the bottom.
// Seen to fail when end_job() clears whole gates.
TEST_F(Priorities, TheMiddleIsHeldAndHolds) {
  Program& top = start_critical(2);
  Program& bottom = start_working(0);
  Program& middle = start({1, "device:4"});
  middle.ask("begin");
  middle.ask("loop 1 100 64");
  EXPECT_TRUE(becomes_held(bottom));
  EXPECT_EQ(gate_of(bottom), bit(slot_of(middle)));
  EXPECT_TRUE(flows(middle));

  top.ask("begin");
  EXPECT_TRUE(becomes_held(middle));
  EXPECT_EQ(gate_of(middle), bit(slot_of(top)));
  EXPECT_EQ(gate_of(bottom), bit(slot_of(top)) | bit(slot_of(middle)));
  EXPECT_EQ(gate_of(top), 0U);

  top.ask("end 1");
  EXPECT_TRUE(flows(middle));
  EXPECT_TRUE(becomes_held(bottom)) << "the end of one of its two holders opened the gate";
  EXPECT_EQ(gate_of(bottom), bit(slot_of(middle)));
  middle.ask("end 1");
  EXPECT_TRUE(flows(bottom));
  EXPECT_TRUE(flows(middle));
}

// When the jobs of two critical processes overlap, the first end opens no gate.
// Seen to fail in the same way, and when clients of equal priority hold each other.
TEST_F(Priorities, TwoCriticalProcessesOverlap) {
  Program& first = start_critical(1);
  Program& second = start_critical(1);
  Program& held = start_working(0);
  first.ask("begin");
  second.ask("begin");
  EXPECT_TRUE(becomes_held(held));
  EXPECT_EQ(gate_of(held), bit(slot_of(first)) | bit(slot_of(second)));
  first.ask("end 1");
  EXPECT_TRUE(becomes_held(held)) << "the first to end opened the gate";
  EXPECT_EQ(gate_of(held), bit(slot_of(second)));
  EXPECT_EQ(gate_of(first), 0U) << "equals do not hold each other";
  second.ask("end 1");
  EXPECT_TRUE(flows(held));
}

// A job holds only the lower-priority clients of its own device.
// Seen to fail without the device in holds().
TEST_F(Priorities, DevicesDoNotInteract) {
  if (on_real_gpu()) GTEST_SKIP() << "needs two devices";
  setenv("SLUICE_SIM_DEVICES", "2", 1);
  const std::vector<std::string> on_second{"CUDA_VISIBLE_DEVICES=1"};
  Program& here = start_working(0);
  Program& critical = start({1, "device:4", on_second});
  Program& there = start({0, "device:4", on_second});
  unsetenv("SLUICE_SIM_DEVICES");
  there.ask("loop 1 100 64");
  EXPECT_TRUE(flows(there));
  critical.ask("begin");
  EXPECT_TRUE(becomes_held(there));
  EXPECT_EQ(gate_of(here), 0U);
  EXPECT_EQ(look().slot(slot_of(here)).outranked.load(), 0U);
  EXPECT_EQ(look().slot(slot_of(there)).outranked.load(), 1U);
  EXPECT_TRUE(flows(here));
  critical.ask("end 1");
  EXPECT_TRUE(flows(there));
  EXPECT_EQ(counted(here, shm::Count::kWaited), 0U);
}

}  // namespace
}  // namespace sluice::test
