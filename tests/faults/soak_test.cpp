// Everything at once: programs of all policies launch, are killed, stopped, forked and changed, and
// so is the controller, at random instants. Prevents: what no single fault brings about. It takes
// SLUICE_SOAK_S seconds (default 4); SLUICE_SOAK_SEED draws the same faults again.
#include <signal.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <random>
#include <thread>

#include "shm/messages.hpp"
#include "shm/policy_text.hpp"
#include "shm/session.hpp"
#include "tests/support/change_request.hpp"
#include "tests/support/end_to_end_test.hpp"

namespace sluice::test {
namespace {

using Clock = std::chrono::steady_clock;

struct Kind {
  int priority;
  const char* policy;
  const char* work;
};

/// None is busy without a gap at a higher priority, or the others would rightly stand still. A job
/// of the first one next to a graph of the second takes 3 ms, because the GPU switches.
constexpr std::array<Kind, 9> kKinds{{
    {2, "device:200us", "jobs 5 20000"},
    {1, "device:200us", "graph 20 50 20000"},
    {0, "device:4", "loop 1 100 64"},
    {0, "device:200us", "mix 50 20"},
    {0, "device:200us", "graph 8 100 0"},
    {0, "device:200us,ahead:20ms", "loop 2 100 0"},
    {0, "gate", "loop 2 50 8"},
    {0, "event:2", "loop 1 100 8"},
    {0, "sync:4", "loop 1 100 8"},
}};

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

class Soak : public EndToEndTest {
 protected:
  void SetUp() override {
    signal(SIGPIPE, SIG_IGN);
    unsetenv("SLUICE_SIM_LOG");  // gigabytes
    std::printf("SLUICE_SOAK_SEED=%lu\n", seed_);
    start_controller();
    for (std::size_t i = 0; i < kKinds.size(); ++i) begin(i);
  }
  void TearDown() override {
    if (!HasFailure()) {
      for (std::size_t i = 0; i < kKinds.size(); ++i) end(i, "exit");
    }
    for (auto& program : programs_) program.reset();
    std::printf("%lu launches", launches_);
    for (const auto& [what, count] : counts_) std::printf(", %s %lu", what.c_str(), count);
    std::printf("\n");
    EndToEndTest::TearDown();
  }

  void begin(std::size_t i) {
    const Kind& kind = kKinds.at(i);
    programs_.at(i) =
        std::make_unique<Program>(own_session_, std::to_string(started_++),
                                  ProgramOptions{kind.priority, kind.policy, {"SLUICE_GIVE=5%"}});
    programs_.at(i)->ask(kind.work);
  }
  /// `how`: exit, or kill.
  void end(std::size_t i, const std::string& how) {
    Program& program = *programs_.at(i);
    if (how == "kill") {
      program.signal(SIGKILL);
    } else {
      program.tell("exit");
    }
    EXPECT_EQ(program.wait(), how == "kill" ? 128 + SIGKILL : 0) << about(i);
    for (std::size_t lane = 0; lane < kLanes; ++lane) launches_ += program.launched(lane);
  }
  void nap(unsigned most_ms) { std::this_thread::sleep_for(1ms * (random_() % most_ms)); }
  std::string about(std::size_t i) const {
    return std::string(kKinds.at(i).policy) + " " + kKinds.at(i).work + ": " +
           programs_.at(i)->said();
  }

  void fork_in(std::size_t i) {
    if (programs_.at(i)->launched() == 0) return;  // the child could use CUDA
    const std::string status = programs_.at(i)->ask("fork launch");
    EXPECT_EQ(status.substr(status.find(' ') + 1), "0") << about(i);
  }
  /// Priority and policy of another kind, and any weight. There may be no controller to ask.
  void change(std::size_t i) {
    const Kind& to = kKinds.at(random_() % kKinds.size());
    const base::Fd fd(shm::connect_controller(shm::socket_path(session_).c_str()));
    const int slot = slot_of(*programs_.at(i));
    if (!fd || slot < 0) return;
    const Look board = look();
    shm::Request request =
        change_of({slot, shm::SlotInfo::unpack(board.slot(slot).info.load()).generation},
                  board.board().board_id.load());
    request.priority = kKinds.at(i).priority == 0 ? 0 : static_cast<std::uint32_t>(to.priority);
    request.policy = shm::parse_policy(to.policy)->pack();
    request.weight = random_() % 4;
    shm::Reply reply;
    (void)shm::ask(fd.get(), request, reply, 100);
  }
  void end_controller(int how) {
    controller().signal(how);
    nap(100);
    controller().signal(SIGCONT);
    if (how == SIGSTOP) return;
    controller().wait();
    start_controller();
  }
  void do_harm() {
    const std::size_t i = random_() % kKinds.size();
    const std::array<std::string, 8> all{"kill",   "exit",   "stop",       "fork",
                                         "change", "change", "controller", "kill"};
    const std::string what = all.at(random_() % all.size());
    ++counts_[what];
    if (what == "kill" || what == "exit") {
      end(i, what);
      begin(i);
    }
    if (what == "stop") {
      programs_.at(i)->stop();
      nap(300);
      programs_.at(i)->signal(SIGCONT);
    }
    if (what == "fork") fork_in(i);
    if (what == "change") change(i);
    if (what == "controller")
      end_controller(std::array{SIGKILL, SIGTERM, SIGSTOP}.at(random_() % 3));
  }

  const std::uint64_t seed_ = number_of("SLUICE_SOAK_SEED", std::random_device()());
  std::mt19937 random_{static_cast<std::uint32_t>(seed_)};
  std::array<std::unique_ptr<Program>, kKinds.size()> programs_;
  std::size_t started_ = 0;
  std::uint64_t launches_ = 0;
  std::map<std::string, std::uint64_t> counts_;
};

TEST_F(Soak, EveryProgramFlowsInTheEnd) {
  const auto until = Clock::now() + std::chrono::seconds(number_of("SLUICE_SOAK_S", 4));
  while (Clock::now() < until && !HasFailure()) {
    for (int i = 0; i < 20; ++i) {
      do_harm();
      nap(60);
    }
    ++counts_["looked"];
    for (std::size_t i = 0; i < kKinds.size(); ++i) {
      const Program& program = *programs_.at(i);
      const std::uint64_t before = program.done();
      const auto moves = [&] { return program.done() != before; };
      EXPECT_TRUE(eventually(moves, kProgramPatience)) << "stands still: " << about(i);
    }
  }
}

}  // namespace
}  // namespace sluice::test
