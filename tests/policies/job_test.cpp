// The begin and end of jobs: explicit jobs that overlap in one process, and jobs of programs that
// report nothing.
#include <chrono>
#include <thread>

#include "shm/gates.hpp"
#include "tests/support/end_to_end_test.hpp"

namespace sluice::test {
namespace {

class JobsOfAProgram : public EndToEndTest {
 protected:
  void SetUp() override {
    EndToEndTest::SetUp();
    start_controller();
    critical_ = &start_critical();
    held_ = &start_best_effort("device:4");
    held_->ask("loop 1 100 64");
    ASSERT_TRUE(flows(*held_));
    controller().stop();  // jobs need no controller
  }
  [[nodiscard]] std::uint64_t job_counter() const {
    return look().slot(slot_of(*critical_)).job.load();
  }

  Program* critical_ = nullptr;
  Program* held_ = nullptr;
};

// The hold lasts from the first begin to the last end in any order. A surplus end has no effect.
// Seen to fail when every end of a job ends the hold.
TEST_F(JobsOfAProgram, ExplicitOnesOverlap) {
  const std::uint64_t before = job_counter();
  EXPECT_EQ(critical_->ask_numbers("begin").at(0), 1U);
  EXPECT_EQ(critical_->ask_numbers("begin").at(0), 2U);
  EXPECT_TRUE(becomes_held(*held_));
  critical_->ask("end 1");
  critical_->ask("end 1");
  critical_->ask("end 77");
  EXPECT_TRUE(becomes_held(*held_)) << "opened before the last job ended";
  EXPECT_EQ(critical_->ask_numbers("begin").at(0), 3U);
  critical_->ask("end 2");
  EXPECT_TRUE(becomes_held(*held_));
  EXPECT_EQ(job_counter(), before + 1) << "only the first begin and the last end count";
  critical_->ask("end 3");
  EXPECT_EQ(gate_of(*held_), 0U);
  EXPECT_TRUE(flows(*held_));
  EXPECT_EQ(job_counter(), before + 2);
}

// After the first explicit job, launches begin no jobs.
// Seen to fail without g_explicit_jobs in touch_slow().
TEST_F(JobsOfAProgram, ExplicitOnesSwitchDetectionOff) {
  critical_->ask("begin");
  critical_->ask("end 1");
  const std::uint64_t before = job_counter();
  critical_->ask("launch 5 100");
  critical_->ask("sync");
  EXPECT_EQ(job_counter(), before);
}

// A transparent job begins with the first launch and ends when a synchronise returns.
// Seen to fail when after_sync() ends nothing.
TEST_F(JobsOfAProgram, TransparentOnesEndAfterASynchronise) {
  for (int i = 0; i < 20; ++i) {
    // Of jobs that follow each other at once, in 0.5 ms of the GPU, the gates may stay closed.
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::uint64_t before = job_counter();
    critical_->progress().release.store(0);
    critical_->ask("hold");
    critical_->ask("launch 3 10");
    EXPECT_NE(gate_of(*held_), 0U);
    critical_->tell("sync");
    if (i == 0) {
      EXPECT_TRUE(becomes_held(*held_)) << "over before the work is done";
    }
    critical_->progress().release.store(1);
    EXPECT_EQ(critical_->answer().substr(0, 2), "ok");
    EXPECT_EQ(gate_of(*held_), 0U) << "not over when the synchronise returns";
    EXPECT_EQ(job_counter(), before + 2);
  }
  EXPECT_TRUE(flows(*held_));
}

// Without a synchronising call, the job ends when the poll sees that the work has ended, not
// before.
// Seen to fail when poll() takes any answer for "done".
TEST_F(JobsOfAProgram, TransparentOnesEndByThePoll) {
  const std::string said = critical_->said();
  critical_->progress().release.store(0);
  critical_->ask("hold");
  critical_->ask("launch 3 10");
  EXPECT_TRUE(becomes_held(*held_));
  EXPECT_NE(gate_of(*held_), 0U) << "over before the work is done";
  critical_->progress().release.store(1);
  EXPECT_TRUE(flows(*held_));
  EXPECT_TRUE(eventually([&] { return !shm::is_active(job_counter()); }));
  EXPECT_EQ(critical_->said(), said);
}

// With the law of docs/reference/closing.md, every second job after the first 24 has open gates
// until never closing is found to harm. What the law finds depends on the machine; that gates open
// again after each job does not.
TEST_F(JobsOfAProgram, MayCloseTheirGatesByTheLaw) {
  controller().signal(SIGCONT);  // it gives the slot
  Program& program = start({2, "device:4", {"SLUICE_GIVE=5%", "SLUICE_PREDICT=0"}});
  const Look board = look();
  const shm::Slot& slot = board.slot(slot_of(board, program.pid()));
  // The host is slower than the GPU, also of a busy machine: else nothing is tried.
  const auto job = [&program] {
    const std::string begun = program.ask("begin");
    program.ask("launch 2 1");
    std::this_thread::sleep_for(10ms);
    program.ask("sync");
    program.ask("end " + begun.substr(0, begun.find(' ')));
  };
  for (int i = 0; i < 24; ++i) job();
  const std::uint64_t closed = slot.job.load();
  for (int i = 0; i < 100; ++i) {
    job();
    EXPECT_EQ(gate_of(*held_), 0U);
  }
  EXPECT_GT(slot.open_ns.load(), 0U);
  EXPECT_GT(slot.job.load(), closed) << "references";
  EXPECT_LT(slot.job.load(), closed + 2 * 100) << "two changes a job that closes its gates";
  EXPECT_EQ(slot.job.load() % 2 + slot.open_job.load() % 2, 0U);
  EXPECT_TRUE(flows(*held_));
}

}  // namespace
}  // namespace sluice::test
