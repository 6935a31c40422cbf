// The controller is stopped, restarted, missing or refused while programs run.
#include <signal.h>

#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "shm/session.hpp"
#include "tests/support/end_to_end_test.hpp"
#include "tests/support/requests.hpp"

namespace sluice::test {
namespace {

using shm::SlotState;

class ControllerFaults : public EndToEndTest {
 protected:
  void hold(const std::string& policy) {
    best_effort_ = &start_best_effort(policy);
    critical_ = &start_critical();
    best_effort_->ask("loop 1 100 64");
    ASSERT_TRUE(flows(*best_effort_));
    critical_->ask("begin");
    ASSERT_TRUE(becomes_held(*best_effort_));
  }

  Program* best_effort_ = nullptr;
  Program* critical_ = nullptr;
};

class Stopped : public ControllerFaults, public testing::WithParamInterface<std::string> {};

// Prevents: a stopped controller takes the critical process's protection away, or costs anybody a
// line or a wait. Seen to fail when the watcher looked at the heartbeat.
TEST_P(Stopped, ChangesNothing) {
  start_controller();
  hold(GetParam());
  controller().stop();
  std::this_thread::sleep_for(300ms);
  EXPECT_TRUE(becomes_held(*best_effort_));
  critical_->ask("end 1");
  EXPECT_TRUE(flows(*best_effort_));
  critical_->ask("begin");
  EXPECT_TRUE(becomes_held(*best_effort_));
  controller().signal(SIGCONT);
  EXPECT_TRUE(becomes_held(*best_effort_));
  critical_->ask("end 2");
  EXPECT_TRUE(flows(*best_effort_));
  EXPECT_EQ(best_effort_->said(), "");
  EXPECT_EQ(critical_->said(), "");
}
INSTANTIATE_TEST_SUITE_P(, Stopped, testing::Values("gate", "device:4"),
                         [](const auto& param_info) {
                           return param_info.param.substr(0, param_info.param.find(':'));
                         });

// Prevents: after a restart a client gets another slot, while the waits in the GPU's queue and in
// its graphs still poll the old one.
// Seen to fail when every request is answered as a first one (no client attaches again), and
// without waits in the graph (20 kernels start in the job).
TEST_F(ControllerFaults, RestartedGivesTheOldSlotsBackAndGraphsObey) {
  constexpr double kBackBoundMs = 1000;
  start_controller();
  Program& graph = start_best_effort("device:4");
  Program& loop = start_best_effort("gate");
  Program& critical = start_critical();
  graph.ask("graph 20 100");
  loop.ask("loop 1 100 8");
  const std::vector<Program*> programs{&graph, &loop, &critical};
  std::vector<int> slots;
  for (const Program* program : programs) slots.push_back(slot_of(*program));
  const std::uint64_t board_id = look().board().board_id.load();
  kill_controller();
  start_controller();
  const Stopwatch since_ready;
  EXPECT_TRUE(eventually([&] { return count_of(log(), "client attached again") == 3; })) << log();
  expect_within("a new controller has its clients' connections", since_ready.ms(), kBackBoundMs);
  for (std::size_t i = 0; i < programs.size(); ++i) {
    EXPECT_EQ(state_of(*programs[i]), SlotState::kLive);
    EXPECT_EQ(slot_of(*programs[i]), slots[i]);
    EXPECT_EQ(programs[i]->said(), "");
  }
  EXPECT_EQ(look().board().board_id.load(), board_id);

  ASSERT_TRUE(flows(graph));
  const std::vector<std::uint64_t> job = critical.ask_numbers("job 20 200");
  EXPECT_TRUE(flows(graph)) << "the graph does not continue after the job";
  const pid_t graph_pid = graph.pid();
  const pid_t critical_pid = critical.pid();
  end_all();
  if (!end_gpu()) return;
  const GpuLog log = gpu_log();
  const Window window = log.until_last_kernel(critical_pid, {job.at(0), job.at(1)});
  ASSERT_GT(window.to_ns, window.from_ns);
  EXPECT_LE(log.starts(graph_pid, window), 4U) << "the captured waits poll an old gate";
}

// Prevents: a death, a stop or an orderly end of the controller, at whatever instant, lets
// best-effort kernels start inside critical jobs, or holds best effort between them.
// Seen to fail when clients opened their gates without a connection: 21 kernels.
TEST_F(ControllerFaults, NoInstantOfItsEndMattersToAnybody) {
  constexpr int kJobs = 24;
  start_controller();
  Program& loop = start_best_effort("device:4");
  Program& graph = start_best_effort("device:4");
  Program& critical = start_critical();
  loop.ask("loop 1 100 64");
  graph.ask("graph 20 100");
  ASSERT_TRUE(flows(loop) && flows(graph));
  std::vector<Window> jobs;
  int idle = 0;
  std::atomic<bool> done{false};
  std::thread service([&] {
    for (int i = 0; i < kJobs; ++i) {
      const std::vector<std::uint64_t> job = critical.ask_numbers("job 20 200");
      jobs.push_back({job.at(0), job.at(1)});
      idle += flows(loop) && flows(graph) ? 0 : 1;
    }
    done.store(true);
  });
  // Here, because a controller ends with the thread that started it.
  std::mt19937 random(20);
  const auto nap = [&] { std::this_thread::sleep_for(std::chrono::milliseconds(random() % 60)); };
  constexpr std::array<int, 3> kEnds{SIGKILL, SIGSTOP, SIGTERM};
  for (unsigned round = 0; !done.load(); ++round) {
    const int end = kEnds[round % kEnds.size()];
    nap();
    controller().signal(end);
    if (end != SIGSTOP) controller().wait();
    nap();
    if (end == SIGSTOP) controller().signal(SIGCONT);
    if (end != SIGSTOP) start_controller();
  }
  service.join();
  EXPECT_EQ(idle, 0) << "held between jobs";
  for (const Program* program : {&loop, &graph, &critical}) EXPECT_EQ(program->said(), "");
  const std::array<pid_t, 2> best_effort{loop.pid(), graph.pid()};
  const pid_t critical_pid = critical.pid();
  end_all();
  if (!end_gpu()) return;
  const GpuLog log = gpu_log();
  std::size_t checked = 0;
  for (const Window& job : jobs) {
    const Window sure = log.until_last_kernel(critical_pid, job);
    checked += sure.to_ns > sure.from_ns ? 1 : 0;
    for (const pid_t pid : best_effort) EXPECT_LE(log.starts(pid, sure), 4U);
  }
  EXPECT_EQ(checked, jobs.size());
}

// Prevents: two controllers both repair one board.
// Seen to fail without the lock of the controller byte in adopt_or_create().
TEST_F(ControllerFaults, SecondOneIsRefused) {
  start_controller();
  hold("device:4");
  const auto second = launch_controller();
  EXPECT_EQ(second->wait(), 1);
  const std::string refusal =
      "session " + session_ + " has a controller, pid " + std::to_string(controller().pid());
  EXPECT_EQ(count_of(log(), refusal), 1U) << log();
  EXPECT_TRUE(becomes_held(*best_effort_)) << "the refused controller opened a gate";
  critical_->ask("end 1");
  EXPECT_TRUE(flows(*best_effort_));
  EXPECT_TRUE(std::filesystem::exists(shm::socket_path(session_)));
}

// Prevents: after something (a clean-up of /dev/shm) removed the controller's socket, a program
// hangs or fails, connected clients lose their gate, or new programs run ungated for ever. Seen to
// fail when each launch asks for the controller and warns: 13 warnings.
TEST_F(ControllerFaults, SocketMissing) {
  start_controller();
  hold("device:4");
  controller().stop();  // or it makes the socket again before the program asks
  std::filesystem::remove(shm::socket_path(session_));
  Program& late = start_unattached({0, "device:4"});
  late.ask("loop 1 100 8");
  EXPECT_TRUE(flows(late)) << "runs ungated";
  EXPECT_EQ(count_of(late.said(), "no controller"), 1U) << late.said();
  EXPECT_EQ(slot_of(late), -1);
  EXPECT_TRUE(becomes_held(*best_effort_));
  controller().signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return state_of(late) == SlotState::kLive; }));
  EXPECT_TRUE(becomes_held(late));
  critical_->ask("end 1");
}

// Prevents: a program that starts before the controller runs ungated for its whole life, or warns
// repeatedly.
// Seen to fail without look_for_controller() (never attaches), and like the previous test
// (8 warnings).
TEST_F(ControllerFaults, ComesUpAfterThePrograms) {
  constexpr double kAttachBoundMs = 1500;
  Program& program = start_unattached({0, "device:4"});
  program.ask("loop 1 100 8");
  EXPECT_TRUE(flows(program));
  EXPECT_EQ(count_of(program.said(), "warning:"), 1U) << program.said();
  EXPECT_EQ(count_of(program.said(), "no controller (start one: sluice controller)"), 1U);
  start_controller();
  const Stopwatch since_ready;
  EXPECT_TRUE(eventually([&] { return state_of(program) == SlotState::kLive; }));
  expect_within("a program attaches to a controller that came later", since_ready.ms(),
                kAttachBoundMs);
  EXPECT_GT(counted(program, shm::Count::kBypassUnattached), 0U);
  Program& critical = start_critical();
  critical.ask("begin");
  EXPECT_TRUE(becomes_held(program));
  critical.ask("end 1");
  EXPECT_TRUE(flows(program));
  EXPECT_EQ(count_of(program.said(), "warning:"), 1U) << program.said();
}

// Prevents: the 64th client gets another client's slot, an error, or no answer.
// Seen to fail when "session full" is treated as a final answer: never attaches.
TEST_F(ControllerFaults, SessionIsFull) {
  start_controller();
  // Request 63 slots without using them. To the controller these clients look like slow starters.
  std::vector<base::Fd> seats;
  for (int i = 0; i < shm::kSlots; ++i) {
    seats.push_back(connect_to(session_));
    const auto request = good_request(1);
    ASSERT_EQ(ask_controller(seats.back().get(), request).status, shm::ReplyStatus::kOk);
  }
  Program& program = start_unattached({0, "device:4"});
  program.ask("loop 1 100 8");
  EXPECT_TRUE(flows(program)) << "runs ungated";
  EXPECT_EQ(count_of(program.said(), "all 63 slots are taken"), 1U) << program.said();
  seats.clear();
  EXPECT_TRUE(eventually([&] { return state_of(program) == SlotState::kLive; }))
      << "does not attach although a slot is free";
  EXPECT_EQ(count_of(program.said(), "warning:"), 1U) << program.said();
}

}  // namespace
}  // namespace sluice::test
