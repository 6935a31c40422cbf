// A program waits for its own later launch: a stream waits for a word that the program sets only
// after further launches. A policy that waits for launches to end would then wait indefinitely.
#include "tests/support/end_to_end_test.hpp"

namespace sluice::test {
namespace {

using SessionTest = EndToEndTest;

class OwnLaterLaunch : public EndToEndTest, public testing::WithParamInterface<std::string> {};

// Prevents: Sluice hangs a program that runs without it.
// Seen to fail without the bound in wait_for_driver(): hangs.
TEST_P(OwnLaterLaunch, RunsOnAfterFiveSecondsAndObeysItsGate) {
  start_controller();
  Program& critical = start_critical();  // a program is paced only while another one outranks it
  Program& program = start_best_effort(GetParam());
  controller().stop();
  const std::size_t warnings = count_of(program.said(), "warning:");
  const std::vector<std::uint64_t> took = program.ask_numbers("own-later-launch 6");
  std::printf("[  TIMED   ] own later launch, %s: ran on after %lu ms\n", GetParam().c_str(),
              static_cast<unsigned long>(took.at(0)));
  EXPECT_GE(took.at(0), 5000U) << "gave up early: then every slow kernel would end the gating";
  EXPECT_EQ(count_of(program.said(), "took more than 5 s"), 1U) << program.said();
  EXPECT_EQ(count_of(program.said(), "warning:"), warnings + 1) << program.said();
  EXPECT_EQ(look().slot(slot_of(program)).skipped_waits.load(), 1U);
  program.ask("loop 1 100 8");
  EXPECT_TRUE(flows(program)) << "does not continue";
  critical.ask("begin");
  EXPECT_TRUE(becomes_held(program)) << "runs ungated";
  critical.ask("end 1");
  EXPECT_TRUE(flows(program));
}
INSTANTIATE_TEST_SUITE_P(, OwnLaterLaunch, testing::Values("sync:1", "event:1"),
                         [](const auto& param_info) {
                           return param_info.param.substr(0, param_info.param.find(':'));
                         });

// Prevents: policies that wait only on the GPU, or not at all, fail such a program too.
// Seen to fail when every policy but event synchronises: waits for 5 s.
TEST_F(SessionTest, OwnLaterLaunchUnderDeviceAndGate) {
  start_controller();
  start_critical();
  for (const char* policy : {"device:1", "gate"}) {
    Program& program = start_best_effort(policy);
    program.ask("own-later-launch 6");
    EXPECT_EQ(program.said(), "");
    EXPECT_EQ(state_of(program), shm::SlotState::kLive);
  }
}

// Prevents: a program whose stream is blocked hangs in its first launch, because we load a module
// there and the driver returns from that only when the context has no work left.
// Seen to fail when the early switch was loaded before the first launch: hangs.
TEST_F(SessionTest, OwnLaterLaunchBeforeAnyOther) {
  start_controller();
  Program& program = start_unattached({1, "device:4"});
  program.ask("own-later-launch 6");
  EXPECT_EQ(program.said(), "");
  EXPECT_EQ(state_of(program), shm::SlotState::kLive);
}

}  // namespace
}  // namespace sluice::test
