// The start and end of a controller, and the files that it leaves.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "controller/program.hpp"
#include "shm/gates.hpp"
#include "shm/policy.hpp"
#include "shm/session.hpp"
#include "tests/support/controller.hpp"
#include "tests/support/fake_client.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/look.hpp"
#include "tests/support/requests.hpp"

namespace sluice::test {
namespace {

class Lifetime : public ControllerTest {};

// Prevents: a controller that exits takes the protection of a job away; files are left.
// Seen to fail when the controller opened all gates.
TEST_F(Lifetime, SigtermLeavesTheGatesToTheClients) {
  const auto controller = start_controller();
  FakeClient low(session_, 0);
  FakeClient high(session_, 1);
  const Look look(session_);
  high.order("begin");
  ASSERT_NE(look.gate(low.slot()), 0U);
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
  EXPECT_EQ(look.gate(low.slot()), shm::bit(high.slot()));
  EXPECT_EQ(look.board().controller_pid.load(), 0U);
  EXPECT_FALSE(std::filesystem::exists(shm::socket_path(session_)));
  EXPECT_TRUE(std::filesystem::exists(board_file())) << "clients still use it";
  high.order("end");
  EXPECT_EQ(look.gate(low.slot()), 0U);
  for (FakeClient* client : {&low, &high}) {
    client->order("leave");
    client->process().wait();
  }
}

// Prevents: the board stays indefinitely if clients are being torn down when the controller exits.
TEST_F(Lifetime, TheBoardOfDyingClientsIsRemoved) {
  const auto controller = start_controller();
  FakeClient client(session_, 0);
  client.order("touch 512");
  const Look look(session_);
  client.process().signal(SIGKILL);
  ASSERT_TRUE(eventually([&] { return look.state(client.slot()) != shm::SlotState::kLive; }));
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
}

TEST_F(Lifetime, SigintAndSighupExitOrderly) {
  for (const int number : {SIGINT, SIGHUP}) {
    const auto controller = start_controller();
    controller->signal(number);
    EXPECT_EQ(controller->wait(), 0) << strsignal(number);
    EXPECT_FALSE(std::filesystem::exists(board_file()));
  }
}

// Prevents: an unused controller runs indefinitely; a controller exits before its clients.
TEST_F(Lifetime, ExitWhenIdleWaitsForTheLastClient) {
  const auto controller = start_controller({"--exit-when-idle"});
  const Look look(session_);
  FakeClient client(session_, 0);
  // A controller without clients would exit after 3 s.
  const std::uint64_t start = base::monotonic_ns();
  ASSERT_TRUE(eventually([&] { return base::monotonic_ns() > start + 4'500'000'000; }));
  EXPECT_NE(look.board().controller_pid.load(), 0U);
  client.order("leave");
  EXPECT_EQ(controller->wait(), 0);
}

// Prevents: the controller exits between the start of `sluice exec` and the program's first driver
// call, or never exits after the holder of a lease has closed its connection and ended.
TEST_F(Lifetime, ALeaseLastsAsLongAsItsProcess) {
  const auto controller = start_controller({"--exit-when-idle"});
  const Look look(session_);
  std::optional<Process> holder(
      std::in_place, std::vector<std::string>{SLUICE_FAKE_CLIENT_PROGRAM, session_, "lease", "0"});
  EXPECT_EQ(holder->read_line(), "leased");
  const std::uint64_t start = base::monotonic_ns();
  ASSERT_TRUE(eventually([&] { return base::monotonic_ns() > start + 4'500'000'000; }));
  EXPECT_NE(look.board().controller_pid.load(), 0U);
  holder.reset();
  EXPECT_EQ(controller->wait(), 0);
}

TEST_F(Lifetime, MaxHoldIsOnTheBoard) {
  const auto controller = start_controller({"--max-hold", "2.5"});
  EXPECT_EQ(Look(session_).board().max_hold_ns.load(), 2'500'000'000U);
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
}

// Prevents: a usage error has the exit code of a failed run, or starts something.
TEST_F(Lifetime, UsageErrorsAreOneLineAndCode2) {
  const std::vector<std::vector<std::string>> wrong{
      {"--nonsense"},          {"--log-level", "loud"},          {"--max-hold", "-1"},
      {"--max-hold", "soon"},  {"--metrics", "0.0.0.0:9464"},    {"--metrics", "127.0.0.1"},
      {"--session", "../etc"}, {"--metrics", "192.168.1.1:9464"}};
  for (const auto& options : wrong) {
    const std::size_t before = log().size();
    std::vector<std::string> command{SLUICE_CONTROLLER_PROGRAM};
    command.insert(command.end(), options.begin(), options.end());
    EXPECT_EQ(Process(command, {.err = log_path()}).wait(), 2) << options[0];
    const std::string said = log().substr(before);
    EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
    EXPECT_NE(said.find(options[0]), std::string::npos) << said;
  }
}

// Prevents: a core dump, and "what():" as the reason that `sluice exec` gives, where a user may
// have no more threads.
TEST_F(Lifetime, WithoutThreadsItSaysSoAndEnds) {
  testing::internal::CaptureStderr();
  ForkedChild starved([] {
    if (!give_up_threads()) return 98;
    controller::run_program("p", {}, [] {});
    return 0;
  });
  EXPECT_EQ(starved.wait(), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "p: cannot start a thread: Resource temporarily unavailable\n");
}

// Prevents: an invalid variable silently selects the default session.
TEST_F(Lifetime, ABadSessionVariableIsAUsageError) {
  setenv("SLUICE_SESSION", "../etc", 1);
  EXPECT_EQ(Process({SLUICE_CONTROLLER_PROGRAM}, {.err = log_path()}).wait(), 2);
  unsetenv("SLUICE_SESSION");
  EXPECT_NE(log().find("'../etc' cannot name a session"), std::string::npos) << log();
}

// Prevents: a stopped terminal, or a log without a reader, stops the heartbeat or keeps the
// controller from exiting.
TEST_F(Lifetime, AFullLogPipeStopsNeitherHeartbeatNorExit) {
  const std::string pipe = own_session_.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const base::Fd reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  fcntl(reader.get(), F_SETPIPE_SZ, 4096);
  Process controller({SLUICE_CONTROLLER_PROGRAM, "--session", session_, "--log-level", "debug"},
                     {.err = pipe});
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(shm::socket_path(session_)); }));
  const Look look(session_);
  const base::Fd connection = connect_to(session_);
  shm::Request request = good_request();
  request.priority = 1000;
  for (int i = 0; i < 2000; ++i) {  // a line each
    ask_controller(connection.get(), request);
    ASSERT_FALSE(HasFailure());
  }
  const std::uint64_t beat = look.board().heartbeat_ns.load();
  EXPECT_TRUE(eventually(
      [&] { return look.board().heartbeat_ns.load() > beat + 5 * shm::kHeartbeatPeriodNs; }));
  controller.signal(SIGTERM);
  EXPECT_EQ(controller.wait(), 0);
}

// Prevents: the end of what reads the log ends the controller.
TEST_F(Lifetime, AClosedLogPipeEndsNothing) {
  const std::string pipe = own_session_.file("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  base::Fd reader(open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  Process controller({SLUICE_CONTROLLER_PROGRAM, "--session", session_, "--log-level", "debug"},
                     {.err = pipe});
  ASSERT_TRUE(eventually([&] { return std::filesystem::exists(shm::socket_path(session_)); }));
  reader.reset();
  EXPECT_TRUE(FakeClient(session_, 0).attached()) << "lines of the log";
  const Look look(session_);
  const std::uint64_t beat = look.board().heartbeat_ns.load();
  EXPECT_TRUE(eventually(
      [&] { return look.board().heartbeat_ns.load() > beat + 5 * shm::kHeartbeatPeriodNs; }));
  controller.signal(SIGTERM);
  EXPECT_EQ(controller.wait(), 0);
}

// Prevents: a client whose CLOCK_MONOTONIC is ahead takes every announced job for lapsed.
TEST_F(Lifetime, AClientWithAnotherClockIsRefused) {
  constexpr int kSkipped = 77;
  const auto controller = start_controller();
  for (const char* offset : {"monotonic 0 0", "monotonic 200000 0"}) {
    ForkedChild outer([&] {
      if (unshare(CLONE_NEWTIME) != 0) return kSkipped;
      std::ofstream("/proc/self/timens_offsets") << offset;
      ForkedChild inside([&] {  // only children are in the new namespace
        const shm::Reply reply = ask_controller(connect_to(session_).get(), good_request());
        const std::string why = reply.text.data();
        if (reply.status == shm::ReplyStatus::kOk) return 1;
        return why.find("in a time namespace") != std::string::npos ? 2 : 3;
      });
      return inside.wait();
    });
    const int result = outer.wait();
    if (result == kSkipped) GTEST_SKIP() << "may not make a time namespace";
    EXPECT_EQ(result, std::string_view(offset) == "monotonic 0 0" ? 1 : 2) << offset;
  }
  controller->signal(SIGTERM);
  EXPECT_EQ(controller->wait(), 0);
}

// Prevents: a client that the controller cannot watch dies, and the gates that it held stay closed.
TEST_F(Lifetime, AClientOfAnotherPidNamespaceIsRefused) {
  const base::Fd own(open("/proc/self/ns/pid_for_children", O_RDONLY | O_CLOEXEC));
  if (!own || unshare(CLONE_NEWPID) != 0) GTEST_SKIP() << "may not make a pid namespace";
  // Without signal_when_we_die: over there the parent has no pid to compare.
  Process controller({SLUICE_CONTROLLER_PROGRAM, "--session", session_},
                     {.err = log_path(), .signal_when_we_die = 0});
  ASSERT_EQ(setns(own.get(), CLONE_NEWPID), 0);
  ASSERT_TRUE(eventually([&] { return log().find("ready") != std::string::npos; }));
  const shm::Reply reply = ask_controller(connect_to(session_).get(), good_request());
  EXPECT_EQ(reply.status, shm::ReplyStatus::kCannotWatch);
  EXPECT_STRNE(reply.text.data(), "");
  controller.signal(SIGTERM);
  EXPECT_EQ(controller.wait(), 0);
}

}  // namespace
}  // namespace sluice::test
