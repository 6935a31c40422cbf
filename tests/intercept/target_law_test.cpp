#include "intercept/jobs/target_law.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "tests/intercept/virtual_gpu.hpp"

namespace sluice::intercept {
namespace {

constexpr std::uint64_t kUs = 1'000;
constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kNever = TargetLaw::kNever;

/// The launches of one job, and how the host behaves between them.
struct Job {
  int launches = 1;
  std::uint64_t host_ns = 0;    ///< Host time before each launch.
  std::uint64_t kernel_ns = 0;  ///< GPU time of each launch.
  int sync_every = 1 << 30;     ///< Launches between two synchronising calls.
};

/// A critical program next to a best-effort program whose kernels have a wait each, on the
/// simulated GPU in virtual time. The critical program runs one job after another, with a pause.
class Together {
 public:
  struct Sum {
    int jobs = 0;  ///< With a known limit.
    int kept = 0;
    std::uint64_t best_effort = 0;  ///< Kernels.
    std::uint64_t ns = 0;
    std::vector<std::uint64_t> took;

    [[nodiscard]] double share_kept() const { return static_cast<double>(kept) / jobs; }
    [[nodiscard]] double kernels_per_ms() const {
      return static_cast<double>(best_effort) * 1e6 / static_cast<double>(ns);
    }
    [[nodiscard]] std::uint64_t median() const {
      std::vector<std::uint64_t> sorted = took;
      std::sort(sorted.begin(), sorted.end());
      return sorted[sorted.size() / 2];
    }
  };

  /// `target`: as users write it; "none" closes the gates at once.
  explicit Together(const char* target) { law.set(*shm::parse_target(target)); }

  /// Runs `count` jobs. `limit_ns`: which jobs count as kept; 0: what the law says.
  Sum run(int count, const std::function<Job(int)>& job_of, std::uint64_t limit_ns = 0) {
    Sum sum;
    const std::uint64_t began = now_;
    const std::uint64_t before = best_effort_done();
    for (int i = 0; i < count; ++i) {
      const std::uint64_t took = run_one(job_of(i));
      const std::uint64_t limit = limit_ns != 0 ? limit_ns : law.limit_ns();
      sum.took.push_back(took);
      if (limit != 0) {
        ++sum.jobs;
        if (took <= limit) ++sum.kept;
      }
      go_to(now_ + kPauseNs);
    }
    sum.best_effort = best_effort_done() - before;
    sum.ns = now_ - began;
    return sum;
  }

  TargetLaw law;
  bool best_effort_runs = true;
  std::uint64_t best_effort_kernel_ns = 400 * kUs;
  /// Instead of the law: the gates close so long after the begin of each job.
  std::optional<std::uint64_t> fixed_delay_ns;
  std::uint64_t late_looks_ns = 60 * kUs;  ///< A thread wakes that much later than it asked for.

 private:
  static constexpr std::uint64_t kPauseNs = 2 * kMs;
  static constexpr std::uint64_t kQueued = 60;

  std::uint64_t run_one(const Job& job) {
    const std::uint64_t began = now_;
    const double pace = noise_(random_);
    launched_ = 0;
    take(begin_job());
    for (int i = 0; i < job.launches; ++i) {
      go_to(now_ + static_cast<std::uint64_t>(pace * noise_(random_) * job.host_ns));
      critical_.kernel(job.kernel_ns, now_);
      ++launched_;
      if ((i + 1) % job.sync_every == 0) synchronise();
    }
    synchronise();
    law.ended(now_, launched_);
    look_ns_ = kNever;
    gate_ = 0;
    gpu_.advance(now_);
    return now_ - began;
  }

  TargetLaw::Step begin_job() {
    if (!fixed_delay_ns) return law.begin(now_, best_effort_runs, false);
    law.begin(now_, best_effort_runs, false);
    return {*fixed_delay_ns == 0, *fixed_delay_ns == 0 ? kNever : now_ + *fixed_delay_ns};
  }

  void take(TargetLaw::Step step) {
    gate_ = step.close ? 1 : 0;
    look_ns_ = step.look_ns == kNever ? kNever : step.look_ns + late_looks_ns;
  }

  void synchronise() {
    while (critical_.queued() != 0) {
      const std::uint64_t next = gpu_.advance(now_);
      if (critical_.queued() == 0) break;
      step_to(std::max(now_ + 1, std::min(next, now_ + 100 * kUs)));
    }
  }

  void go_to(std::uint64_t time) {
    while (now_ < time) step_to(time);
  }

  /// Goes to `time`, or to the next look if that comes first.
  void step_to(std::uint64_t time) {
    const bool look = look_ns_ <= time;
    now_ = look ? std::max(now_, look_ns_) : std::min(time, now_ + 200 * kUs);
    gpu_.advance(now_);
    if (look && fixed_delay_ns)
      take({true, kNever});
    else if (look)
      take(law.look(now_, launched_));
    feed();
  }

  void feed() {
    while (best_effort_runs && best_effort_.queued() < kQueued) {
      best_effort_.wait_until_zero(gate_, now_);
      best_effort_.kernel(best_effort_kernel_ns, now_);
    }
  }
  std::uint64_t best_effort_done() { return best_effort_.completed() / 2; }

  /// A host does not take the same time twice.
  std::mt19937 random_{5};
  std::uniform_real_distribution<double> noise_{0.97, 1.03};
  test::VirtualGpu gpu_;
  test::VirtualGpu::Stream critical_ = gpu_.add_stream();
  test::VirtualGpu::Stream best_effort_ = gpu_.add_stream();
  std::uint64_t gate_ = 0;
  std::uint64_t now_ = kMs;
  std::uint64_t look_ns_ = kNever;
  std::uint64_t launched_ = 0;
};

/// 20 ms of host work, which makes the GPU work for 4 ms; five synchronising calls. Eager PyTorch.
Job host_bound(double factor = 1) {
  return {static_cast<int>(200 * factor), 100 * kUs, 20 * kUs, 40};
}
std::function<Job(int)> constantly(const Job& job) {
  return [job](int) { return job; };
}

/// Time of `job` with closed gates.
std::uint64_t held_time(const Job& job) {
  Together closed("none");
  return closed.run(20, constantly(job)).median();
}

void say(const char* what, const Together::Sum& sum) {
  printf("%-12s %5.2f ms median, %.1f %% kept, best effort %.3f kernels/ms\n", what,
         static_cast<double>(sum.median()) / 1e6, 100 * sum.share_kept(), sum.kernels_per_ms());
}

// The point of a target: a job that leaves the GPU idle most of the time gives best effort what a
// closed gate takes, and still ends in time.
TEST(TargetLaw, AHostBoundJobLetsBestEffortRunAndKeepsItsTarget) {
  const auto without = Together("none").run(300, constantly(host_bound()));
  Together with("p99=1.3x");
  with.run(100, constantly(host_bound()));  // learning
  const auto sum = with.run(500, constantly(host_bound()));
  say("host-bound", sum);
  EXPECT_EQ(with.law.state(), shm::TargetState::kKept);
  EXPECT_EQ(with.law.limit_ns(), with.law.alone_ns() / 1000 * 1300);
  EXPECT_GE(sum.share_kept(), 0.99);
  EXPECT_GE(sum.kernels_per_ms(), 2.5 * without.kernels_per_ms());
}

// At the target, best effort gets what it would get from the best delay that a user could choose.
TEST(TargetLaw, IsAsGoodAsTheBestFixedDelay) {
  for (const double times_alone : {1.1, 1.3}) {
    const Job job = host_bound();
    const auto limit = static_cast<std::uint64_t>(times_alone * held_time(job));
    double best = 0;
    for (std::uint64_t delay = 0; delay <= 28 * kMs; delay += 2 * kMs) {
      Together fixed("none");
      fixed.fixed_delay_ns = delay;
      const auto sum = fixed.run(100, constantly(job), limit);
      if (sum.share_kept() >= 0.99) best = std::max(best, sum.kernels_per_ms());
    }
    Together with(times_alone < 1.2 ? "p99=1.1x" : "p99=1.3x");
    with.run(150, constantly(job));
    const auto sum = with.run(300, constantly(job));
    say("fixed", sum);
    printf("  best fixed %.2f\n", best);
    EXPECT_GE(sum.kernels_per_ms(), 0.9 * best) << times_alone;
    EXPECT_GE(sum.share_kept(), 0.99) << times_alone;
  }
}

// One launch that keeps the GPU busy: the gates close when the rest of the time is needed.
// What jobs with open gates cost is known, and jobs whose program has given enough close at once.
TEST(TargetLaw, JobsCostWhatTheyAreSaidToCost) {
  const Job job{.launches = 200, .host_ns = 20 * kUs, .kernel_ns = 6 * kUs, .sync_every = 50};
  const double alone = double(Together("none").run(100, [&](int) { return job; }).median());
  Together run("p99=30ms");
  run.run(100, [&](int) { return job; });
  (void)run.law.take_spent();
  const auto sum = run.run(2000, [&](int) { return job; });
  double longer = 0;
  for (const std::uint64_t took : sum.took) longer += double(took) - alone;
  EXPECT_GT(longer, 0.5 * alone * 2000) << "the target is used";
  EXPECT_NEAR(run.law.take_spent(), longer, 0.1 * longer);
  EXPECT_EQ(run.law.take_spent(), 0);
  run.law.set_overdrawn(true);
  const auto closed = run.run(500, [&](int) { return job; });
  EXPECT_NEAR(double(closed.median()), alone, 0.05 * alone);
  EXPECT_EQ(run.law.take_spent(), 0);
  run.law.set_overdrawn(false);
  EXPECT_GT(double(run.run(500, [&](int) { return job; }).median()), 1.2 * alone);
}

TEST(TargetLaw, AJobOfOneLaunchUsesItsSlack) {
  const Job job{1, 50 * kUs, 5 * kMs};
  const auto without = Together("none").run(200, constantly(job));
  Together with("p99=1.6x");
  with.run(100, constantly(job));
  const auto sum = with.run(500, constantly(job));
  say("one launch", sum);
  EXPECT_GE(sum.share_kept(), 0.99);
  EXPECT_GT(sum.kernels_per_ms(), 1.2 * without.kernels_per_ms());
}

// Nobody knows how long a job will be when it begins.
TEST(TargetLaw, JobsOfVariableLengthKeepAnAbsoluteTarget) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> factor(0.5, 2);
  const auto variable = [&](int) { return host_bound(factor(random)); };
  const auto without = Together("none").run(200, variable);
  Together with("p99=48ms");
  with.run(150, variable);
  const auto sum = with.run(1000, variable);
  say("variable", sum);
  EXPECT_GE(sum.share_kept(), 0.985);
  EXPECT_GE(sum.kernels_per_ms(), 1.5 * without.kernels_per_ms());
}

// Prevents: a limit that belongs to what the program did an hour ago.
TEST(TargetLaw, TheTimeAloneFollowsTheProgram) {
  for (const double end : {1.6, 0.5}) {
    Together with("p99=1.3x");
    with.run(150, constantly(host_bound()));
    const auto drift =
        with.run(1500, [end](int i) { return host_bound(1 + (end - 1) * i / 1500); });
    with.run(900, constantly(host_bound(end)));
    const auto alone = static_cast<double>(held_time(host_bound(end)));
    say("drift", drift);
    EXPECT_NEAR(static_cast<double>(with.law.limit_ns()), 1.3 * alone, 0.1 * alone) << end;
    const auto sum = with.run(300, constantly(host_bound(end)));
    EXPECT_GE(sum.share_kept(), 0.99) << end;
  }
}

// Prevents: a limit of a host that was faster. What is learned at full load does not hold when the
// host sleeps between requests, and the other way round.
TEST(TargetLaw, AHostThatChangesItsPaceIsLearnedAnew) {
  Together with("p99=1.3x");
  with.run(150, constantly(host_bound()));
  Job slower = host_bound();
  slower.host_ns = slower.host_ns * 14 / 10;
  const auto alone = static_cast<double>(held_time(slower));
  with.run(120, constantly(slower));
  EXPECT_NEAR(static_cast<double>(with.law.limit_ns()), 1.3 * alone, 0.1 * alone);
  EXPECT_GE(with.run(300, constantly(slower)).share_kept(), 0.985);
}

// Prevents: a limit of a program that was slower. While gates may stay open, only every sixteenth
// job is a measure, so the old limit would hold for a thousand jobs.
TEST(TargetLaw, AProgramThatGetsFasterIsLearnedAnew) {
  TargetLaw law;
  law.set(*shm::parse_target("p99=2x"));
  std::uint64_t now = kMs;
  const auto run = [&](std::size_t jobs, std::uint64_t took) {
    for (std::size_t i = 0; i < jobs; ++i, now += 2 * took) {
      law.begin(now, true, false);
      law.ended(now + took, 5);
    }
  };
  run(TargetLaw::kFirst + TargetLaw::kKept, 100 * kMs);
  ASSERT_TRUE(law.may_begin_open());
  EXPECT_EQ(law.limit_ns(), 200 * kMs);
  constexpr std::size_t kOpenJobs = TargetLaw::kKept * 9 / 8;  // With the measures between them.
  run(2 * kOpenJobs, 40 * kMs);
  run(TargetLaw::kEnough + 1, 40 * kMs);
  EXPECT_EQ(law.limit_ns(), 80 * kMs);
}

// Prevents: jobs that are late because best effort is not what it was.
TEST(TargetLaw, TheTargetIsKeptWhileTheLoadChanges) {
  Together with("p99=1.3x");
  with.best_effort_runs = false;
  with.run(100, constantly(host_bound()));
  int jobs = 0;
  int kept = 0;
  for (int round = 0; round < 8; ++round) {
    with.best_effort_runs = round % 3 != 2;
    with.best_effort_kernel_ns = round % 2 == 0 ? 100 * kUs : 3 * kMs;
    const auto sum = with.run(150, constantly(host_bound()));
    say("load", sum);
    jobs += sum.jobs;
    kept += sum.kept;
  }
  EXPECT_GE(kept, 0.985 * jobs);
}

// Prevents: the limit of a rare kind of job for all jobs, because every sixteenth job is of that
// kind: a program that runs one large batch and then fifteen small ones.
TEST(TargetLaw, JobsThatAlternateAreLearnedAlike) {
  const auto alone = static_cast<double>(held_time(host_bound(0.5)));
  Together with("p90=1.3x");
  const auto kinds = [](int i) { return host_bound(i % 16 == 15 ? 2 : 0.5); };
  with.run(160, kinds);
  for (int round = 0; round < 6; ++round) {
    const auto sum = with.run(160, kinds);
    say("alternating", sum);
    const auto limit = static_cast<double>(with.law.limit_ns());
    EXPECT_TRUE(limit == 0 || std::abs(limit - 1.3 * alone) < 0.2 * alone) << limit;
    EXPECT_LE(static_cast<double>(sum.median()), 1.4 * alone);
  }
}

// A target that cannot be kept costs nothing: the gates close at once, as without it.
TEST(TargetLaw, AnImpossibleTargetChangesNothing) {
  const auto without = Together("none").run(200, constantly(host_bound()));
  for (const char* target : {"p99=15ms", "p99=1x"}) {
    Together with(target);
    with.run(100, constantly(host_bound()));
    EXPECT_TRUE(with.law.begin(1'000'000 * kMs, true, false).close);
    const auto sum = with.run(200, constantly(host_bound()));
    say(target, sum);
    EXPECT_EQ(with.law.state(), shm::TargetState::kMissed) << target;
    EXPECT_FALSE(with.law.may_begin_open()) << target;
    EXPECT_NEAR(static_cast<double>(sum.median()), static_cast<double>(without.median()),
                0.01 * static_cast<double>(without.median()));
  }
}

// Prevents: a limit from the first jobs, which load and compile.
TEST(TargetLaw, ALongFirstJobIsNoMeasure) {
  Together with("p99=1.3x");
  with.run(3, constantly(host_bound(30)));
  with.run(15, constantly(host_bound()));
  with.run(2, constantly(host_bound(30)));
  with.run(45, constantly(host_bound()));
  EXPECT_LT(with.law.limit_ns(), 1.5 * static_cast<double>(held_time(host_bound())));
}

/// A job that makes a launch each millisecond, and whose gates are closed.
void run_closed(TargetLaw& law, std::uint64_t& now, std::uint64_t launches) {
  const std::uint64_t began = now;
  std::uint64_t look = law.begin(now, true, true).look_ns;
  for (now += launches * kMs; look < now;) look = law.look(look, (look - began) / kMs).look_ns;
  law.ended(now, launches);
  now += kMs;
}

// Prevents: a long job that is taken for one of the many short ones.
TEST(TargetLaw, AJobIsJudgedByThoseThatCameAsFar) {
  TargetLaw law;
  law.set(*shm::parse_target("p99=400ms"));
  std::uint64_t now = kMs;
  for (int i = 0; i < 40; ++i) run_closed(law, now, i % 3 == 0 ? 100 : 10);
  const std::uint64_t began = now;
  const auto begin = law.begin(began, true, false);
  ASSERT_FALSE(begin.close);
  // 400 ms less the median of 10 ms, less the spread of 90 ms.
  EXPECT_NEAR(static_cast<double>(begin.look_ns - began), 300e6, 2e6);
  const auto look = law.look(began + 100 * kMs, 50);
  ASSERT_FALSE(look.close);
  EXPECT_NEAR(static_cast<double>(look.look_ns - began), 260e6, 4e6) << "50 ms are left";
  EXPECT_TRUE(law.look(look.look_ns, 50).close) << "it made no progress";
  law.ended(began + 300 * kMs, 100);
  law.begin(now += kMs * 500, true, false);
  EXPECT_TRUE(law.look(now + kMs, 101).close) << "no job ever came so far";
}

// Gates close at once before enough is known, and after the target was taken away.
TEST(TargetLaw, WithoutKnowledgeOrTargetTheGatesCloseAtOnce) {
  TargetLaw law;
  EXPECT_TRUE(law.begin(0, true, false).close);
  EXPECT_EQ(law.ended(5 * kMs, 1), std::nullopt);
  law.begin(5 * kMs, true, false);
  law.set(*shm::parse_target("p99=50ms"));
  EXPECT_EQ(law.state(), shm::TargetState::kLearning);
  EXPECT_EQ(law.ended(6 * kMs, 1), std::nullopt) << "it began without a target";
  std::uint64_t now = 10 * kMs;
  for (std::size_t i = 0; i < TargetLaw::kFirst + TargetLaw::kEnough - 2; ++i, now += 20 * kMs) {
    EXPECT_TRUE(law.begin(now, true, false).close) << i;
    EXPECT_EQ(law.ended(now + 10 * kMs, 5), true) << "an absolute limit is known at once";
  }
  EXPECT_FALSE(law.begin(now, true, false).close);
  law.ended(now + 10 * kMs, 5);
  law.begin(now + 15 * kMs, true, false);
  const std::uint64_t alone = law.alone_ns();
  law.set({});
  law.set(*shm::parse_target("p99=50ms"));
  EXPECT_EQ(law.alone_ns(), alone);
  EXPECT_TRUE(law.ended(now + 16 * kMs, 5)) << "its target changed while it ran";
  law.set({});
  EXPECT_TRUE(law.begin(now + 20 * kMs, true, false).close);
  EXPECT_EQ(law.state(), shm::TargetState::kNone);
}

/// Jobs of so many ms, one behind the other.
void run_jobs(TargetLaw& law, std::uint64_t& now, int jobs, std::uint64_t ms, bool alone) {
  for (int i = 0; i < jobs; ++i) {
    law.begin(now, true, true);
    law.ended(now += ms * kMs, 5, alone);
    now += kMs;
  }
}

// Prevents: a target of 1.2 times what jobs take next to a neighbour of equal priority, which
// nobody notices, because all jobs keep it.
TEST(TargetLaw, AMultipleIsOfJobsThatWereAlone) {
  TargetLaw law;
  law.set(*shm::parse_target("p99=1.2x"));
  std::uint64_t now = kMs;
  run_jobs(law, now, 200, 14, false);
  EXPECT_EQ(law.limit_ns(), 0U);
  EXPECT_EQ(law.state(), shm::TargetState::kLearning);
  EXPECT_TRUE(law.begin(now, true, false).close);
  law.ended(now += kMs, 1, false);
  run_jobs(law, now, 40, 7, true);
  EXPECT_EQ(law.alone_ns(), 7 * kMs);
  EXPECT_EQ(law.limit_ns(), 7 * kMs / 1000 * 1200);
  run_jobs(law, now, 300, 14, false);
  EXPECT_EQ(law.alone_ns(), 7 * kMs) << "it was no other then";
  EXPECT_EQ(law.state(), shm::TargetState::kMissed);
  // A time needs no time alone.
  law.set(*shm::parse_target("p99=20ms"));
  EXPECT_EQ(law.state(), shm::TargetState::kKept);
}

// Prevents: somebody outside, who is seen two seconds later, is a part of the time alone.
TEST(TargetLaw, ATimeAloneCountsWhenItIsSure) {
  TargetLaw law(2000 * kMs);
  law.set(*shm::parse_target("p99=1.2x"));
  std::uint64_t now = kMs;
  run_jobs(law, now, 100, 9, true);
  EXPECT_EQ(law.alone_ns(), 0U);
  law.somebody_outside(now);
  run_jobs(law, now, 300, 18, false);
  EXPECT_EQ(law.alone_ns(), 0U);
  run_jobs(law, now, 300, 9, true);
  EXPECT_EQ(law.alone_ns(), 9 * kMs);
}

// Prevents: no job is ever alone, because those below run between two jobs; or those below wait for
// that for more than half of the time.
TEST(TargetLaw, JobsThatShowTheTimeAloneComeInBlocks) {
  TargetLaw law;
  std::uint64_t now = kMs;
  const auto part = [&](int jobs, bool alone) {
    int quiet = 0;
    int in_turn = 0;
    int longest = 0;
    for (int i = 0; i < jobs; ++i) {
      in_turn = law.wants_quiet() ? in_turn + 1 : 0;
      quiet += law.wants_quiet() ? 1 : 0;
      longest = std::max(longest, in_turn);
      run_jobs(law, now, 1, 7, alone);
    }
    EXPECT_TRUE(quiet == 0 || longest >= int(TargetLaw::kAloneBlock)) << longest;
    return double(quiet) / jobs;
  };
  EXPECT_EQ(part(100, true), 0) << "there is no target";
  law.set(*shm::parse_target("p99=50ms"));
  EXPECT_EQ(part(100, true), 0) << "it is a time";
  TargetLaw fresh;
  law = fresh;
  law.set(*shm::parse_target("p99=1.2x"));
  EXPECT_NEAR(part(400, false), 0.5, 0.05);
  part(40, true);
  EXPECT_NEAR(part(1280, true), 1.0 / 16, 0.02);
}

TEST(TargetLaw, AJobWithOpenGatesOfAnotherReasonMayBeLateAndShowsNothing) {
  TargetLaw law;
  law.set(*shm::parse_target("p99=10ms"));
  std::uint64_t now = kMs;
  run_jobs(law, now, 50, 7, true);
  const std::uint64_t alone = law.alone_ns();
  for (int i = 0; i < 100; ++i) {
    law.begin(now, true, false);
    law.no_sample();
    EXPECT_EQ(law.ended(now += 30 * kMs, 5), false);
  }
  EXPECT_EQ(law.alone_ns(), alone);
  EXPECT_EQ(law.state(), shm::TargetState::kKept);
}

}  // namespace
}  // namespace sluice::intercept
