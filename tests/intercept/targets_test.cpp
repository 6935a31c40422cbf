// Jobs of a client with a target: the gates below close as late as the target allows.
#include <gtest/gtest.h>

#include <thread>

#include "base/clock.hpp"
#include "intercept/jobs/target_law.hpp"
#include "shm/policy.hpp"
#include "shm/target.hpp"
#include "shm/target_counts.hpp"
#include "sluice/sluice.h"
#include "tests/intercept/above.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;

class Targets : public Above {
 protected:
  void ask_for(const char* target) {
    const std::uint64_t wanted = shm::parse_target(target)->pack();
    slot().requested_target.store(wanted);
    ASSERT_TRUE(eventually([&] { return slot().target.load() == wanted; }));
  }
  /// Attaches and runs jobs of 2 ms until enough of them are known.
  void learn_jobs(const char* target) {
    attach_above();
    ask_for(target);
    for (std::size_t i = 0; i < TargetLaw::kFirst + TargetLaw::kEnough; ++i) {
      EXPECT_EQ(state(), shm::TargetState::kLearning);
      const std::uint64_t job = sluice_job_begin(0);
      EXPECT_TRUE(closed()) << "nothing is known yet";
      std::this_thread::sleep_for(2ms);
      sluice_job_end(job);
    }
    EXPECT_EQ(state(), shm::TargetState::kKept);
  }
  shm::TargetState state() { return static_cast<shm::TargetState>(slot().target_state.load()); }
  bool active() { return shm::is_active(slot().job.load()); }
  bool open_job() { return shm::is_active(slot().open_job.load()); }
};

TEST_F(Targets, TheGatesCloseLateAndOpenAtTheEnd) {
  learn_jobs("p99=2s");
  const std::uint64_t begin = base::monotonic_ns();
  const std::uint64_t job = sluice_job_begin(0);
  EXPECT_FALSE(closed());
  EXPECT_TRUE(open_job());
  EXPECT_FALSE(active()) << "who attaches now would be held";
  EXPECT_TRUE(notice_thread()) << "the watcher alone would be up to 20 ms late";
  ASSERT_TRUE(eventually([&] { return closed(); }));
  const std::uint64_t closed_after = base::monotonic_ns() - begin;
  EXPECT_GE(closed_after, 1000 * kMs) << "the job has 1998 ms to spare";
  EXPECT_FALSE(open_job());
  EXPECT_TRUE(active());
  EXPECT_GE(slot().open_ns.load(), 1000 * kMs);
  sluice_job_end(job);
  EXPECT_FALSE(closed());
  EXPECT_FALSE(active() || open_job());
  EXPECT_GE(slot().job_times.recent().ns.back(), 1000 * kMs) << "a job counts from its begin";
}

// Prevents: a job counter, or a gate, that a job with open gates leaves behind.
TEST_F(Targets, AJobThatEndsEarlyClosesNothing) {
  learn_jobs("p99=5s");
  const std::uint64_t before = slot().job.load();
  const std::uint64_t in_time = slot().target_kept.load();
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t job = sluice_job_begin(0);
    EXPECT_FALSE(closed());
    launch();
    std::this_thread::sleep_for(1ms);
    sluice_job_end(job);
    EXPECT_FALSE(open_job());
  }
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(closed());
  EXPECT_EQ(slot().job.load(), before);
  EXPECT_EQ(slot().target_kept.load(), in_time + 3);
  EXPECT_EQ(slot().target_jobs.load(), slot().target_kept.load());
}

// The jobs of a program that knows nothing of Sluice have targets too.
TEST_F(Targets, TransparentJobsBeginWithOpenGates) {
  attach("gate", 5);
  low_.emplace(session_, 0);
  ask_for("p99=5s");
  const auto job = [] {
    launch();
    ::cuStreamSynchronize(nullptr);
  };
  for (int i = 0; i < 200 && state() != shm::TargetState::kKept; ++i) job();
  ASSERT_EQ(state(), shm::TargetState::kKept);
  const std::uint64_t closings = slot().job.load();
  const std::uint64_t open_jobs = slot().open_job.load();
  for (int i = 0; i < 5; ++i) job();
  EXPECT_LE(slot().job.load(), closings + 2) << "one job in 16 runs with closed gates";
  EXPECT_GE(slot().open_job.load(), open_jobs + 8);
  EXPECT_FALSE(closed() || open_job());
}

// The reason for an announcement is a gate that is closed in time.
TEST_F(Targets, AnAnnouncedJobWithTimeToSpareClosesNothingBefore) {
  learn_jobs("p99=5s");
  const std::uint64_t start = base::monotonic_ns() + 30 * kMs;
  const std::uint64_t announced = sluice_job_announce(start);
  while (base::monotonic_ns() < start) {
    EXPECT_FALSE(closed());
    EXPECT_EQ(below().slack_ns.load(), shm::kUnlimitedSlack);
    std::this_thread::sleep_for(100us);
  }
  const std::uint64_t job = sluice_job_begin(announced);  // it may have lapsed on a busy machine
  EXPECT_FALSE(closed());
  EXPECT_TRUE(open_job());
  sluice_job_end(job);
  EXPECT_FALSE(open_job());
}

// Prevents: the share of time with open gates compared to jobs of before the target was set.
TEST_F(Targets, BothTimesOfJobsBeginWithTheTarget) {
  learn_jobs("p99=5s");
  EXPECT_GE(slot().target_total_ns.load(), slot().open_ns.load());
  slot().requested_target.store(shm::parse_target("p99=4s")->pack());
  ASSERT_TRUE(eventually([&] { return slot().target.load() == slot().requested_target.load(); }));
  const auto total_ns = [&] {
    return shm::of_target(slot().target_total_ns, slot().before_target.total_ns);
  };
  EXPECT_EQ(total_ns(), 0U);
  const std::uint64_t job = sluice_job_begin(0);
  std::this_thread::sleep_for(10ms);
  sluice_job_end(job);
  EXPECT_GE(total_ns(), 10 * kMs);
  EXPECT_GE(total_ns(), shm::of_target(slot().open_ns, slot().before_target.open_ns));
  EXPECT_GT(slot().job_times.total_ns.load(), total_ns());
  EXPECT_GT(slot().target_total_ns.load(), total_ns()) << "counters never go back";
}

// Prevents: `sluice set --target none` that holds only from the next job on.
TEST_F(Targets, ATargetThatIsTakenAwayClosesTheGates) {
  learn_jobs("p99=60s");
  const std::uint64_t job = sluice_job_begin(0);
  EXPECT_FALSE(closed());
  slot().requested_target.store(0);
  EXPECT_TRUE(eventually([&] { return closed(); }));
  sluice_job_end(job);
  EXPECT_FALSE(closed());
  EXPECT_EQ(state(), shm::TargetState::kNone);
}

// Prevents: the length of best-effort launches is learned while a job with open gates runs.
TEST_F(Targets, AJobWithOpenGatesIsNotQuiet) {
  learn_jobs("p99=5s");
  const std::uint64_t before = slot().open_job.load();
  sluice_job_end(sluice_job_begin(0));
  EXPECT_EQ(slot().open_job.load(), before + 2);
}

// A program that knows what is good enough says so itself, before or after it has a slot.
TEST_F(Targets, TheProgramSetsATarget) {
  choose("gate", 5);
  EXPECT_EQ(sluice_set_target("p99=7ms"), 1);
  attach("gate", 5);
  EXPECT_EQ(slot().target.load(), shm::parse_target("p99=7ms")->pack());
  EXPECT_EQ(sluice_set_target("p99=7"), 0);
  EXPECT_EQ(sluice_set_target(nullptr), 0);
  EXPECT_EQ(slot().target.load(), shm::parse_target("p99=7ms")->pack());
  EXPECT_EQ(sluice_set_target("p95=2x"), 1);
  EXPECT_EQ(slot().target.load(), shm::parse_target("p95=2x")->pack());
  std::this_thread::sleep_for(50ms);  // the watcher has looked since
  EXPECT_EQ(slot().target.load(), shm::parse_target("p95=2x")->pack());
  EXPECT_EQ(sluice_set_target("none"), 1);
  EXPECT_EQ(slot().target.load(), 0U);
}

// Prevents: a job that began without a target is measured from the begin of an earlier job, and the
// target "cannot be kept" for hundreds of jobs after that.
TEST_F(Targets, AJobThatBeganWithoutATargetIsNoSampleOfAnEarlierJob) {
  learn_jobs("p99=150ms");
  const std::uint64_t with = sluice_job_begin(0);
  ask_for("none");
  sluice_job_end(with);
  std::this_thread::sleep_for(300ms);
  const std::uint64_t without = sluice_job_begin(0);
  ask_for("p99=150ms");
  sluice_job_end(without);
  EXPECT_EQ(shm::of_target(slot().target_jobs, slot().before_target.jobs), 0U)
      << "this job took no 300 ms";
  EXPECT_EQ(state(), shm::TargetState::kKept);
  const std::uint64_t next = sluice_job_begin(0);
  EXPECT_FALSE(closed());
  sluice_job_end(next);
}

// Prevents: "gates open for 3 % of their time", where "their" counts jobs of before the target.
TEST_F(Targets, TheOpenShareIsOfTheJobsWithThatTarget) {
  attach_above();
  const std::uint64_t before = sluice_job_begin(0);
  std::this_thread::sleep_for(1s);
  sluice_job_end(before);
  ask_for("p99=5s");
  for (std::size_t i = 0; i < TargetLaw::kFirst + TargetLaw::kEnough; ++i)
    sluice_job_end(sluice_job_begin(0));
  for (int i = 0; i < 3; ++i) {
    const std::uint64_t job = sluice_job_begin(0);
    EXPECT_FALSE(closed());
    std::this_thread::sleep_for(1s);
    sluice_job_end(job);
  }
  const shm::TargetCounts& before_target = slot().before_target;
  const double share =
      static_cast<double>(shm::of_target(slot().open_ns, before_target.open_ns)) /
      static_cast<double>(shm::of_target(slot().target_total_ns, before_target.total_ns));
  EXPECT_GE(share, 0.9) << "what `sluice status` divides";
}

// Prevents: no job is ever alone next to best effort that always has work, and the time alone is
// that of jobs that felt it.
TEST_F(Targets, BeforeAJobThatShowsTheTimeAloneGatesStayClosed) {
  attach_above();
  ask_for("p99=1.3x");
  int stayed = 0;
  for (int i = 0; i < 40; ++i) {
    const std::uint64_t job = sluice_job_begin(0);
    EXPECT_TRUE(closed());
    sluice_job_end(job);
    stayed += closed() ? 1 : 0;
  }
  EXPECT_NEAR(stayed, 20, 5) << "in every second block of four";
  EXPECT_TRUE(eventually([this] { return !closed() && !active(); })) << "no other job comes";
  EXPECT_EQ(state(), shm::TargetState::kLearning);
  ask_for("p99=50ms");
  for (int i = 0; i < 20; ++i) {
    sluice_job_end(sluice_job_begin(0));
    EXPECT_FALSE(closed()) << "a time needs no time alone";
  }
}

// An impossible word on the board is no target.
TEST_F(Targets, AnInvalidTargetIsIgnored) {
  attach_above();
  ask_for("p95=7ms");
  slot().requested_target.store(5);
  std::this_thread::sleep_for(60ms);
  EXPECT_EQ(slot().target.load(), shm::parse_target("p95=7ms")->pack());
}

}  // namespace
}  // namespace sluice::intercept::test
