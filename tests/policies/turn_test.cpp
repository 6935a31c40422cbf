// Turns among programs of one priority, end to end on the simulated GPU.
#include <thread>

#include "shm/messages.hpp"
#include "tests/support/change_request.hpp"
#include "tests/support/end_to_end_test.hpp"
#include "tests/support/requests.hpp"

namespace sluice::test {
namespace {

class TurnsOf : public SimulatedSessionTest {
 protected:
  /// A program whose kernels take 1 ms, a twentieth of a turn, four of which are always queued.
  Program& start_busy(const char* weight) {
    Program& program = start({0, "device:200us", {std::string("SLUICE_WEIGHT=") + weight}});
    program.ask("loop 1 1000 4");
    return program;
  }
  bool takes_turns(const Program& program, bool takes) {
    return eventually([&] {
      const Look board = look();
      const shm::Slot& slot = board.slot(slot_of(board, program.pid()));
      return (slot.turn.takes.load() != 0) == takes;
    });
  }
  void ask_for_weight(const Program& program, std::uint32_t weight) {
    const Look board = look();
    const int slot = slot_of(board, program.pid());
    shm::Request request =
        change_of({slot, shm::SlotInfo::unpack(board.slot(slot).info.load()).generation},
                  board.board().board_id.load());
    request.weight = weight;
    const auto connection = connect_to(session_);
    EXPECT_EQ(ask_controller(connection.get(), request).status, shm::ReplyStatus::kOk);
  }
};

TEST_F(TurnsOf, ProgramsHaveTheRatioOfTheirWeights) {
  Program& big = start_busy("3");
  Program& small = start_busy("none");
  ASSERT_TRUE(takes_turns(big, true) && takes_turns(small, true));
  // On a busy host a program cannot use the whole of a short turn: so the ratio of what they have
  // done may be greater, and only what they were given is exact. One that does not run for a second
  // has less: then the next part counts.
  const auto ratio = [&] {
    const std::uint64_t big_before = big.done();
    const std::uint64_t small_before = small.done();
    EXPECT_TRUE(eventually([&] { return small.done() > small_before + 60; }, kProgramPatience));
    const auto done = static_cast<double>(big.done() - big_before);
    return done / static_cast<double>(small.done() - small_before);
  };
  double best = 0;
  for (int i = 0; i < 4 && best <= 2 && !HasFailure(); ++i) best = ratio();
  EXPECT_GT(best, 2);
  const Look board = look();
  const auto used_ms = [&](const Program& program) {
    return static_cast<double>(board.slot(slot_of(board, program.pid())).turn.used.load()) / 1e6;
  };
  constexpr double kTurnMs = 20 * 10 / 3.0;  // the simulated GPU is ten times slower
  EXPECT_GT(used_ms(small), 4 * kTurnMs);
  EXPECT_NEAR(used_ms(big), used_ms(small), 2 * kTurnMs);
  // Prevents: a weight that is taken away and stays in force.
  ask_for_weight(big, 0);
  EXPECT_TRUE(takes_turns(big, false) && takes_turns(small, false));
  EXPECT_TRUE(flows(big) && flows(small));
  EXPECT_EQ(gate_of(big) | gate_of(small), 0U);
}

// Prevents: the last kernel of a turn runs on next to the next owner.
TEST_F(TurnsOf, NobodyBeginsWhileTheLastKernelRuns) {
  const auto start_long = [&]() -> Program& {
    Program& program = start({0, "device:200us", {"SLUICE_WEIGHT=1"}});
    program.ask("loop 1 15000 4");  // 150 ms of real time each, a turn is 200 ms
    return program;
  };
  Program& one = start_long();
  Program& other = start_long();
  ASSERT_TRUE(takes_turns(one, true) && takes_turns(other, true));
  // Five kernels each, of which a turn takes one or two.
  ASSERT_TRUE(eventually([&] { return one.done() > 4 && other.done() > 4; }, kProgramPatience))
      << "the durations are known";
  const Look board = look();
  const shm::Word& turn = board.slot(slot_of(board, other.pid())).turn.until_ns;
  int late = 0;
  constexpr int kTurns = 5;
  for (int i = 0; i < kTurns; ++i) {
    ASSERT_TRUE(eventually([&] { return turn.load() == 0; }));
    ASSERT_TRUE(eventually([&] { return turn.load() != 0; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the program counts its kernels
    const std::uint64_t done = one.done();
    ASSERT_TRUE(eventually([&] { return turn.load() == 0; }));
    late += one.done() != done ? 1 : 0;
  }
  EXPECT_LE(late, kTurns - 3) << "a busy host lets a program count late";
}

// Prevents: a turn that dies with its owner.
TEST_F(TurnsOf, TheOthersGoOnWhateverBecomesOfOne) {
  Program& one = start_busy("1");
  Program& other = start_busy("1");
  ASSERT_TRUE(takes_turns(one, true) && takes_turns(other, true));
  one.signal(SIGSTOP);
  EXPECT_TRUE(flows(other));
  one.signal(SIGCONT);
  EXPECT_TRUE(flows(one) && flows(other));
  one.signal(SIGKILL);
  one.wait();
  EXPECT_TRUE(flows(other));
  EXPECT_TRUE(takes_turns(other, false));
}

// Prevents: a program that never synchronises has half of the GPU for ever.
TEST_F(TurnsOf, WhoLaunchesNothingMoreHasNoTurns) {
  Program& busy = start_busy("1");
  Program& other = start({0, "device:200us"});
  ASSERT_TRUE(takes_turns(busy, true) && takes_turns(other, true));
  other.ask("launch 20 1000");
  const Look board = look();
  const shm::Slot& slot = board.slot(slot_of(board, other.pid()));
  EXPECT_TRUE(eventually(
      [&] { return !shm::is_active(slot.job.load()) && slot.turn.until_ns.load() == 0; }));
  const std::uint64_t used = slot.turn.used.load();
  const std::uint64_t before = busy.done();
  EXPECT_TRUE(eventually([&] { return busy.done() > before + 60; }, kProgramPatience));
  EXPECT_EQ(slot.turn.used.load(), used) << "it had a turn and nothing to run";
}

// Prevents: the same with work from before the first turn: nobody looks whether it is done.
TEST_F(TurnsOf, AJobFromBeforeTheTurnsEnds) {
  Program& other = start({0, "device:4", {"SLUICE_GPU_TIME=0"}});
  other.ask("launch 5 1000");
  start_busy("1");
  ASSERT_TRUE(takes_turns(other, true));
  const Look board = look();
  const shm::Slot& slot = board.slot(slot_of(board, other.pid()));
  EXPECT_TRUE(eventually([&] { return !shm::is_active(slot.job.load()); }));
}

// Prevents: the next client of a slot is spaced for turns that it does not take.
TEST_F(TurnsOf, NothingOfThemStaysInTheSlot) {
  Program& one = start_busy("1");
  Program& other = start_busy("1");
  ASSERT_TRUE(takes_turns(one, true) && takes_turns(other, true));
  const int slot = slot_of(one);
  one.signal(SIGKILL);
  one.wait();
  EXPECT_TRUE(eventually([&] { return look().state(slot) == shm::SlotState::kFree; }));
  other.signal(SIGKILL);
  other.wait();
  Program& next = start({0, "device:4"});
  EXPECT_EQ(look().slot(slot_of(next)).outranked.load(), shm::kOutranked);
}

// Prevents: jobs that wait until a turn is over.
TEST_F(TurnsOf, AJobAboveHoldsWhoeverHasTheTurn) {
  Program& one = start_busy("1");
  Program& other = start_busy("1");
  ASSERT_TRUE(takes_turns(one, true) && takes_turns(other, true));
  critical_->ask("begin");
  EXPECT_TRUE(becomes_held(one) && becomes_held(other));
  critical_->ask("end 1");
  EXPECT_TRUE(flows(one) && flows(other));
}

}  // namespace
}  // namespace sluice::test
