// Deaths of clients, of the controller, and of both. Each test fails if controller/repair.cpp lacks
// the repair that the test names.
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>

#include "base/clock.hpp"
#include "shm/gates.hpp"
#include "tests/support/controller.hpp"
#include "tests/support/fake_client.hpp"
#include "tests/support/look.hpp"
#include "tests/support/requests.hpp"
#include "tests/support/stopwatch.hpp"

namespace sluice::test {
namespace {

using shm::SlotState;

class Faults : public ControllerTest {};

/// The board, mapped for writing as a client maps it. Counts as a user of the board while it
/// exists.
shm::BoardMapping use_board(const std::string& session) {
  return shm::BoardMapping::attach(session);
}

// Prevents: a critical process that is killed inside a job holds the other clients indefinitely, or
// until the kernel has torn its memory down.
TEST_F(Faults, KilledHolderOpensTheGatesBelow) {
  constexpr double kBoundMs = 100;
  const auto controller = start_controller();
  FakeClient low(session_, 0);
  FakeClient high(session_, 1);
  ASSERT_TRUE(low.attached() && high.attached());
  const Look look(session_);
  high.order("touch 512");
  high.order("begin");
  ASSERT_EQ(look.gate(low.slot()), shm::bit(high.slot()));

  const Stopwatch since_kill;
  high.process().signal(SIGKILL);
  ASSERT_TRUE(eventually([&] { return look.gate(low.slot()) == 0; }));
  const double took = since_kill.ms();
  high.process().wait();
  std::printf("gate open %.1f ms after SIGKILL, process gone after %.1f ms\n", took,
              since_kill.ms());
  EXPECT_LT(took, kBoundMs);
  EXPECT_TRUE(eventually([&] { return look.state(high.slot()) == SlotState::kFree; }));
  EXPECT_TRUE(eventually([&] {
    return log().find("died inside a job: slot " + std::to_string(high.slot())) !=
           std::string::npos;
  }));

  low.order("leave");
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
}

ino_t board_inode(const std::string& file) {
  struct stat found {};
  return stat(file.c_str(), &found) == 0 ? found.st_ino : 0;
}

// Prevents: a restarted controller creates a new board under living clients, although the GPU's
// queue and graphs contain the addresses of their gates; or gates that were held stay open.
TEST_F(Faults, ARestartedControllerAdoptsTheBoard) {
  auto controller = start_controller();
  FakeClient low(session_, 0);
  FakeClient high(session_, 1);
  const Look look(session_);
  high.order("begin");
  ASSERT_EQ(look.gate(low.slot()), shm::bit(high.slot()));
  const ino_t board = board_inode(board_file());
  const std::uint64_t jobs = look.slot(high.slot()).job.load();

  controller->signal(SIGKILL);
  controller->wait();
  controller = start_controller();
  EXPECT_EQ(look.gate(low.slot()), shm::bit(high.slot())) << "the job has not ended";
  EXPECT_EQ(board_inode(board_file()), board);
  EXPECT_EQ(look.board().board_id.load(), low.board_id());
  EXPECT_EQ(look.board().controller_starts.load(), 2U);
  EXPECT_EQ(look.board().controller_pid.load(), static_cast<std::uint32_t>(controller->pid()));
  EXPECT_EQ(look.slot(high.slot()).job.load(), jobs);
  EXPECT_TRUE(eventually([&] {
    return look.state(low.slot()) == SlotState::kLive &&
           look.state(high.slot()) == SlotState::kLive;
  }));
  EXPECT_EQ(look.slot(low.slot()).pid.load(), static_cast<std::uint32_t>(low.pid()));

  high.order("end");
  EXPECT_EQ(look.gate(low.slot()), 0U);
  for (FakeClient* client : {&low, &high}) client->order("leave");
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
}

// Prevents: a gate stays closed indefinitely after its holder and the controller died together.
TEST_F(Faults, ControllerAndHolderKilledTogether) {
  auto controller = start_controller();
  FakeClient low(session_, 0);
  FakeClient high(session_, 1);
  const Look look(session_);
  high.order("begin");
  controller->signal(SIGKILL);
  high.process().signal(SIGKILL);
  controller->wait();
  high.process().wait();
  controller = start_controller();
  EXPECT_TRUE(eventually([&] { return look.state(low.slot()) == SlotState::kLive; }));
  EXPECT_TRUE(eventually([&] { return look.gate(low.slot()) == 0; }));
  EXPECT_EQ(look.state(high.slot()), SlotState::kFree);
  EXPECT_EQ(look.board().used.load(), shm::bit(low.slot()));
  EXPECT_EQ(look.slot(low.slot()).outranked.load(), 0U);
  low.order("leave");
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
}

// Prevents: a change stays half done after the controller or a client was killed during it.
TEST_F(Faults, AdoptionFinishesWhatWasHalfDone) {
  constexpr int kGhost = 40;
  constexpr int kKilled = 41;
  constexpr std::uint32_t kNoPid = 0x3fffffff;
  auto controller = start_controller();
  FakeClient low(session_, 0);
  FakeClient lower(session_, 0);
  FakeClient high(session_, 1);
  // Stopped, so that only the controller can correct their gates.
  for (FakeClient* client : {&low, &lower}) client->process().stop();
  high.order("begin");
  controller->signal(SIGKILL);
  controller->wait();
  {
    shm::BoardMapping mapping = use_board(session_);
    shm::Board& board = mapping.board();
    const auto slot = [&](int index) -> shm::Slot& {
      return board.slots[static_cast<std::size_t>(index)];
    };
    board.used.fetch_or(
        shm::bit(kGhost));  // killed in release(): the state is free, the bit still set
    slot(kKilled).info.store(shm::SlotInfo{SlotState::kLive, 9, 0, 1}.pack());
    slot(kKilled).pid.store(kNoPid);
    slot(kKilled).job.store(1);
    slot(low.slot())
        .gate.fetch_or(shm::bit(kGhost) | shm::bit(kKilled) | shm::bit(shm::kControllerBit));
    slot(lower.slot()).gate.store(0);
  }
  controller = start_controller();
  const Look look(session_);
  EXPECT_EQ(look.gate(low.slot()), shm::bit(high.slot()));
  EXPECT_EQ(look.gate(lower.slot()), shm::bit(high.slot()));
  EXPECT_EQ(look.board().used.load(),
            shm::bit(low.slot()) | shm::bit(lower.slot()) | shm::bit(high.slot()));
  EXPECT_EQ(look.state(kKilled), SlotState::kFree);
  for (FakeClient* client : {&low, &lower}) client->process().signal(SIGCONT);
  for (FakeClient* client : {&low, &lower, &high}) client->order("leave");
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
}

// Prevents: the slot of a dead client is kept because another process has its pid now.
TEST_F(Faults, AdoptionDoesNotTakeAReusedPidForTheClient) {
  constexpr int kOld = 20;
  auto controller = start_controller();
  const shm::BoardMapping user = use_board(session_);
  controller->signal(SIGKILL);
  controller->wait();
  Process stranger({"/bin/sleep", "600"});
  shm::Slot& slot = user.board().slots[kOld];
  slot.info.store(shm::SlotInfo{SlotState::kReserved, 0, 0, 1}.pack());
  slot.attached_ns.store(1);  // long before the stranger started
  slot.pid.store(static_cast<std::uint32_t>(stranger.pid()));
  user.board().used.fetch_or(shm::bit(kOld));
  controller = start_controller();
  EXPECT_EQ(user.board().used.load(), 0U);
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
  std::filesystem::remove(board_file());  // `user` still maps it
}

// Prevents: after an exec inside a job the gate stays closed, and the slot stays taken while the
// pid lives.
TEST_F(Faults, ExecInsideAJobOpensTheGateAndFreesTheSlot) {
  const auto controller = start_controller();
  FakeClient low(session_, 0);
  FakeClient high(session_, 1);
  const Look look(session_);
  high.order("begin");
  ASSERT_NE(look.gate(low.slot()), 0U);
  high.order("exec");
  EXPECT_TRUE(eventually([&] { return look.gate(low.slot()) == 0; }));
  EXPECT_TRUE(eventually([&] { return look.state(high.slot()) == SlotState::kFree; }));
  EXPECT_EQ(kill(high.pid(), 0), 0) << "the new program has ended";
  low.order("leave");
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
}

// Prevents: a client that dies between its reply and going live keeps its slot indefinitely.
TEST_F(Faults, AClientThatNeverGoesLiveGivesItsSlotBack) {
  const auto controller = start_controller();
  const Look look(session_);
  base::Fd connection = connect_to(session_);
  const shm::Reply reply = ask_controller(connection.get(), good_request());
  ASSERT_EQ(look.state(reply.slot), SlotState::kReserved);
  connection = base::Fd();
  EXPECT_TRUE(eventually([&] { return look.board().used.load() == 0; }));
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
}

// Prevents: a process drops its connection, and its slot is given to another client while its
// pending stream waits still refer to the slot.
TEST_F(Faults, WithoutAConnectionASlotIsKeptUntilTheProcessIsGone) {
  const auto controller = start_controller();
  FakeClient low(session_, 0);
  const Look look(session_);
  const auto beats_pass = [&] {
    const std::uint64_t beat = look.board().heartbeat_ns.load();
    return eventually(
        [&] { return look.board().heartbeat_ns.load() > beat + 10 * shm::kHeartbeatPeriodNs; });
  };
  low.order("disconnect");
  ASSERT_TRUE(beats_pass());
  EXPECT_EQ(look.state(low.slot()), SlotState::kLive);
  low.order("exec");  // the mutex is released, but the pid lives
  ASSERT_TRUE(eventually([&] { return look.state(low.slot()) == SlotState::kDead; }));
  ASSERT_TRUE(beats_pass());
  EXPECT_EQ(look.state(low.slot()), SlotState::kDead);
  low.process().signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return look.board().used.load() == 0; }));
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
}

// Prevents: a controller that continues after SIGSTOP treats living clients as dead, or writes no
// heartbeat.
TEST_F(Faults, AStoppedControllerGoesOn) {
  const auto controller = start_controller();
  FakeClient low(session_, 0);
  const Look look(session_);
  controller->signal(SIGSTOP);
  ASSERT_TRUE(eventually([&] {
    return base::monotonic_ns() - look.board().heartbeat_ns.load() > 2 * shm::kHeartbeatLostNs;
  }));
  controller->signal(SIGCONT);
  EXPECT_TRUE(eventually([&] {
    return base::monotonic_ns() - look.board().heartbeat_ns.load() < shm::kHeartbeatLostNs;
  }));
  EXPECT_EQ(look.state(low.slot()), SlotState::kLive);
  low.order("leave");
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
}

}  // namespace
}  // namespace sluice::test
