// Deaths: of clients, of the controller, of both. Each test fails if the repair it names is taken
// out of controller/repair.cpp.
#include <signal.h>

#include <chrono>
#include <filesystem>

#include "support.hpp"

namespace sluice::controller::test {
namespace {

using shm::SlotState;

class Faults : public ControllerTest {};

double milliseconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

// Prevents: a critical process that is killed inside a job blocks the others for ever, or for as
// long as the kernel takes to tear its memory down.
TEST_F(Faults, KilledHolderOpensTheGatesBelow) {
  constexpr double kBoundMs = 100;
  const auto controller = start_controller();
  Client low(session_, 0);
  Client high(session_, 1);
  ASSERT_TRUE(low.attached() && high.attached());
  const Look look(session_);
  high.order("touch 512");
  high.order("begin");
  ASSERT_EQ(look.gate(low.slot()), shm::bit(high.slot()));

  const auto killed = std::chrono::steady_clock::now();
  high.process().signal(SIGKILL);
  ASSERT_TRUE(eventually([&] { return look.gate(low.slot()) == 0; }));
  const double took = milliseconds_since(killed);
  high.process().wait();
  std::printf("gate open %.1f ms after SIGKILL, process gone after %.1f ms\n", took,
              milliseconds_since(killed));
  EXPECT_LT(took, kBoundMs);
  EXPECT_TRUE(eventually([&] { return look.state(high.slot()) == SlotState::kFree; }));
  EXPECT_NE(log().find("died inside a job: slot " + std::to_string(high.slot())),
            std::string::npos);

  low.order("leave");
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
}

}  // namespace
}  // namespace sluice::controller::test
