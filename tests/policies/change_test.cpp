// A program gets another policy while it runs, on the simulated GPU. Every launch runs once and in
// order, gates hold the program under the new policy, and nothing hangs.
#include <algorithm>
#include <array>

#include "shm/messages.hpp"
#include "shm/policy.hpp"
#include "tests/support/change_request.hpp"
#include "tests/support/end_to_end_test.hpp"
#include "tests/support/requests.hpp"

namespace sluice::test {
namespace {

class PolicyChanges : public SimulatedSessionTest {
 protected:
  void set(const Program& program, const char* policy) {
    const Look board = look();
    const int slot = slot_of(board, program.pid());
    shm::Request request =
        change_of({slot, shm::SlotInfo::unpack(board.slot(slot).info.load()).generation},
                  board.board().board_id.load());
    request.policy = shm::parse_policy(policy)->pack();
    const auto connection = connect_to(session_);
    const shm::Reply reply = ask_controller(connection.get(), request);
    EXPECT_EQ(reply.status, shm::ReplyStatus::kOk) << reply.text.data();
    const auto& in_force = board.slot(request.slot).policy;
    EXPECT_TRUE(eventually([&] { return in_force.load() == request.policy; })) << policy;
  }
};

constexpr std::array<const char*, 8> kPolicies{"device:200us", "gate",   "device:2", "event:3",
                                               "none",         "sync:2", "device:8", "event:1"};

// Prevents: when a wait of one policy meets the queue of another, a launch is lost, runs twice or
// runs out of order, or a thread never returns.
TEST_F(PolicyChanges, UnderLoadEveryLaunchIsDoneOnceAndInOrder) {
  constexpr std::size_t kThreads = 3;
  Program& program = start_best_effort("device:4");
  program.ask("loop 3 100 32");
  critical_->ask("jobs 3000");
  for (std::size_t i = 0; i < 4 * kPolicies.size(); ++i) {
    const std::uint64_t done = program.done(0);
    set(program, kPolicies[i % kPolicies.size()]);
    EXPECT_TRUE(eventually([&] { return program.done(0) > done + 4; })) << "makes no progress";
  }
  critical_->ask("halt");
  program.ask("halt");
  std::uint64_t launched = 0;
  for (std::size_t lane = 0; lane < kThreads; ++lane) {
    EXPECT_TRUE(eventually([&] { return program.done(lane) == program.launched(lane); }));
    launched += program.launched(lane);
  }
  EXPECT_EQ(look().slot(slot_of(program)).skipped_waits.load(), 0U);
  const pid_t pid = program.pid();
  end_all();
  ASSERT_TRUE(end_gpu());
  std::size_t kernels = 0;
  for (const auto& [stream, of_stream] : gpu_log().of(pid)) {
    kernels += of_stream.size();
    for (std::size_t i = 1; i < of_stream.size(); ++i) {
      ASSERT_LT(of_stream[i - 1].sequence, of_stream[i].sequence) << "of stream " << stream;
      ASSERT_LE(of_stream[i - 1].end_ns, of_stream[i].start_ns) << "of stream " << stream;
    }
  }
  EXPECT_EQ(kernels, launched + 1) << "and the launch that attached";
}

// Prevents: effects of an old policy that outlast it. Launches that were not spaced under none must
// be spaced under device, and waits queued under device must not hang the next policy.
TEST_F(PolicyChanges, InsideAJobTheNewPolicyHoldsAndTheNextLetsGo) {
  Program& program = start_best_effort("none");
  program.ask("loop 2 100 32");
  critical_->ask("begin");
  EXPECT_TRUE(flows(program));
  for (const char* policy : {"device:4", "gate", "device:200us", "event:2", "sync:1"}) {
    SCOPED_TRACE(policy);
    set(program, policy);
    EXPECT_TRUE(becomes_held(program));
  }
  critical_->ask("end 1");
  // The work that was queued under device still has its waits and ends.
  const std::uint64_t done = program.done();
  EXPECT_TRUE(eventually([&] { return program.done() > done + 100; }));
  critical_->ask("begin");
  EXPECT_TRUE(becomes_held(program));
  set(program, "none");
  EXPECT_TRUE(flows(program)) << "held on the host by its previous policy";
  critical_->ask("end 2");
}

}  // namespace
}  // namespace sluice::test
