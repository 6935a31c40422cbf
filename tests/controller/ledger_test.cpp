// What a session has gained, in virtual time: GPU time that is counted twice, or for a GPU that
// nobody shares; jobs next to best effort taken for jobs alone; numbers that nobody has measured.
#include "controller/ledger.hpp"

#include <array>
#include <random>

#include "shm/policy.hpp"
#include "shm/target.hpp"
#include "tests/support/board_test.hpp"

namespace sluice::controller::test {
namespace {

using shm::Gain;
constexpr std::uint64_t kLook = 2000 * sluice::test::kMs;
using sluice::test::kMs;
using sluice::test::kNow;

/// A critical client in slot 0, best effort in slot 1.
class Gains : public sluice::test::BoardTest {
 protected:
  Gains() { add_client(0, 5, "serve"); }

  void look(const std::map<int, double>& busy = {}) {
    ledger_.look(shm::take_snapshot(*board_, now_ns_), busy);
  }
  /// As many looks, with what happens between two of them: the critical client uses the GPU for
  /// `critical`, best effort for `best_effort` permille of the time.
  void pass(int looks, std::uint64_t critical, std::uint64_t best_effort,
            const std::map<int, double>& busy = {}) {
    for (int i = 0; i < looks; ++i) {
      work(0, critical);
      if (board_->used.load() & shm::bit(1)) work(1, best_effort);
      for (int job = 0; job < jobs_; ++job) slot(0).job_times.add(job_ns_);
      now_ns_ += kLook;
      look(busy);
    }
  }
  void work(int index, std::uint64_t permille) {
    slot(index).gpu_ns.fetch_add(kLook / 1000 * permille);
    if (permille != 0) slot(index).entries[0][shm::Count::kGated].fetch_add(1);
  }
  /// The critical client is never idle: its job has no end.
  void run_on(int index) {
    slot(index).job.store(1);
    slot(index).job_since_ns.store(now_ns_);
  }
  void leave(int index) {
    set_state(index, shm::SlotState::kFree, 0);
    board_->used.fetch_and(~shm::bit(index));
  }
  /// The first jobs, which load, and a p99 alone of `ns`.
  void learn_alone(std::uint64_t ns) {
    jobs_ = 20;
    job_ns_ = ns;
    look();
    pass(10, 100, 0);
  }
  [[nodiscard]] static double percent(std::uint64_t part, std::uint64_t of) {
    return 100.0 * static_cast<double>(part) / static_cast<double>(of);
  }

  Ledger ledger_;
  std::uint64_t now_ns_ = kNow;
  int jobs_ = 0;
  std::uint64_t job_ns_ = 0;
};

TEST(DurationBins, KnowTheP99ToOnePercent) {
  DurationBins bins;
  for (std::uint64_t ms = 1; ms <= 1000; ++ms) bins.add(ms * kMs);
  EXPECT_NEAR(static_cast<double>(*bins.p99_ns()), 990e6, 10e6);
  DurationBins twice = bins;
  twice.add(bins);
  EXPECT_EQ(twice.count(), 2000U);
  EXPECT_EQ(twice.p99_ns(), bins.p99_ns());
  DurationBins odd;
  for (std::uint64_t i = 0; i < 50; ++i) odd.add(0);
  for (std::uint64_t i = 0; i < 50; ++i) odd.add(~std::uint64_t{0});
  EXPECT_GT(*odd.p99_ns(), 3'000'000 * kMs) << "longer than any bin";
}

TEST_F(Gains, AreNothingBeforeTheFirstLook) { EXPECT_EQ(ledger_.gain(), Gain{}); }

TEST_F(Gains, AreGpuTimeOfBestEffortNextToACriticalClient) {
  add_client(1, 0, "train");
  look();
  pass(10, 320, 510);
  const Gain gain = ledger_.gain();
  EXPECT_EQ(gain.since_ns, kNow);
  EXPECT_EQ(gain.shared_ns, 10 * kLook);
  EXPECT_NEAR(percent(gain.busy_ns, gain.shared_ns), 83, 0.1);
  EXPECT_NEAR(percent(gain.best_effort_ns, gain.shared_ns), 51, 0.1);
  EXPECT_FALSE(gain.measured);
}

// Prevents: a training that has the GPU for itself, called a gain.
TEST_F(Gains, AreNotThoseOfAGpuWithoutACriticalClient) {
  add_client(1, 0, "train");
  leave(0);
  look();
  pass(10, 0, 900);
  EXPECT_EQ(ledger_.gain().shared_ns, 0U);
  EXPECT_EQ(ledger_.gain().best_effort_ns, 0U);
  EXPECT_TRUE(ledger_.devices().empty());
  add_client(0, 5, "serve");
  pass(1, 0, 900);
  EXPECT_EQ(ledger_.gain().shared_ns, 0U) << "it came between the two looks";
  pass(1, 0, 900);
  EXPECT_EQ(ledger_.gain().shared_ns, kLook);
}

// Prevents: an hour of training that is forgotten when it ends, or counted again for the next
// client of its slot.
TEST_F(Gains, KeepWhatEndedClientsHad) {
  add_client(1, 0, "train");
  look();
  pass(5, 0, 500);
  leave(1);
  pass(5, 0, 0);
  add_client(1, 0, "other");
  slot(1).info.store(shm::SlotInfo{shm::SlotState::kLive, 0, 0, 2}.pack());
  slot(1).gpu_ns.store(0);
  pass(5, 0, 500);
  EXPECT_EQ(ledger_.gain().best_effort_ns, 5 * kLook) << "half of ten looks";
}

// Prevents: a GPU that is busy for 150 % of the time.
TEST_F(Gains, OfKernelsAtTheSameTimeAreNoMoreThanTheTime) {
  add_client(1, 0, "train");
  look();
  pass(4, 500, 1000);
  EXPECT_EQ(ledger_.gain().busy_ns, ledger_.gain().shared_ns);
  EXPECT_NEAR(percent(ledger_.gain().best_effort_ns, ledger_.gain().shared_ns), 66.7, 0.1);
}

TEST_F(Gains, GoByTheDriverWhereItSaysHowBusyTheGpuIs) {
  add_client(1, 0, "train");
  look();
  pass(10, 200, 600, {{0, 0.9}});
  EXPECT_TRUE(ledger_.gain().measured);
  EXPECT_NEAR(percent(ledger_.gain().busy_ns, ledger_.gain().shared_ns), 90, 0.1);
  EXPECT_NEAR(percent(ledger_.gain().best_effort_ns, ledger_.gain().busy_ns), 75, 0.1);
  pass(10, 200, 600);
  EXPECT_FALSE(ledger_.gain().measured) << "the driver was silent for half of the time";
  EXPECT_NEAR(percent(ledger_.gain().busy_ns, ledger_.gain().shared_ns), 80, 0.1);
  EXPECT_EQ(ledger_.devices().at(0).seen_ns, 10 * kLook);
}

// Prevents: "0 % best effort" of a training that runs with SLUICE_GPU_TIME=0.
TEST_F(Gains, AreUnknownWhereNobodyEstimatesGpuTime) {
  add_client(1, 0, "train");
  look();
  for (int i = 0; i < 4; ++i) {
    slot(1).entries[0][shm::Count::kGated].fetch_add(1);
    pass(1, 300, 0);
  }
  EXPECT_EQ(ledger_.gain().busy_ns, 0U);
  EXPECT_EQ(ledger_.gain().best_effort_ns, Gain::kUnknown);
  EXPECT_EQ(ledger_.gain().shared_ns, 4 * kLook);
  ledger_ = Ledger();
  for (int i = 0; i < 4; ++i) {
    slot(1).entries[0][shm::Count::kGated].fetch_add(1);
    pass(1, 300, 0, {{0, 0.9}});
  }
  EXPECT_NEAR(percent(ledger_.gain().busy_ns, ledger_.gain().shared_ns), 90, 0.1)
      << "the driver knows";
  EXPECT_EQ(ledger_.gain().best_effort_ns, Gain::kUnknown);
}

TEST_F(Gains, CompareJobsNextToBestEffortWithJobsAlone) {
  learn_alone(10 * kMs);
  EXPECT_EQ(ledger_.gain().p99_ns, 0U) << "no job was next to best effort";
  add_client(1, 0, "train");
  job_ns_ = 13 * kMs;
  pass(10, 100, 500);
  EXPECT_NEAR(ledger_.gain().percent_of_alone, 130, 3);
  EXPECT_NEAR(static_cast<double>(ledger_.gain().p99_ns), 13e6, 0.2e6);
  EXPECT_NEAR(static_cast<double>(*ledger_.jobs().at(0).alone.p99_ns()), 10e6, 0.2e6);
}

// Prevents: a p99 of seven jobs, and a slow first request in the p99.
TEST_F(Gains, SayNothingOfFewJobsNorOfTheFirst) {
  add_client(1, 0, "train");
  look();
  jobs_ = static_cast<int>(Ledger::kFirstJobs);
  job_ns_ = 5000 * kMs;
  pass(1, 100, 500);
  jobs_ = static_cast<int>(DurationBins::kLeast) - 1 - 50;
  job_ns_ = 10 * kMs;
  pass(1, 100, 500);
  jobs_ = 50;
  pass(1, 100, 500);
  EXPECT_EQ(ledger_.gain().p99_ns, 0U) << "99 jobs";
  jobs_ = 1;
  pass(1, 100, 500);
  EXPECT_NEAR(static_cast<double>(ledger_.gain().p99_ns), 10e6, 0.2e6);
  EXPECT_EQ(ledger_.gain().percent_of_alone, 0U) << "nothing is known of jobs alone";
}

// Prevents: jobs that ended after best effort, and began before, called jobs alone.
TEST_F(Gains, TakeJobsForAloneOnlyIfBestEffortWasQuietAllTheTime) {
  add_client(1, 0, "train");
  look();
  pass(1, 100, 500);
  jobs_ = 1;
  job_ns_ = 3 * kLook;
  for (int i = 0; i < 16; ++i) slot(0).job_times.add(kMs);  // the first ones
  pass(1, 100, 500);
  const auto alone = [&] { return ledger_.jobs().at(0).alone.count(); };
  // The last work was given in the look before. One look is left out, then the job must fit.
  pass(4, 100, 0);
  EXPECT_EQ(alone(), 0U);
  pass(2, 100, 0);
  EXPECT_GE(alone(), 1U);
  const std::uint64_t before = alone();
  hold(0, 1, now_ns_);  // it has work again, and is held
  pass(1, 100, 0);
  EXPECT_EQ(alone(), before) << "work that is held is work";
}

// Prevents: jobs called alone next to the last work of a client that has left since.
TEST_F(Gains, DoNotTakeJobsForAloneWhenBestEffortHasJustLeft) {
  add_client(1, 0, "train");
  learn_alone(10 * kMs);
  const std::uint64_t before = ledger_.jobs().at(0).alone.count();
  EXPECT_GT(before, 0U);
  leave(1);
  pass(2, 100, 0);
  EXPECT_EQ(ledger_.jobs().at(0).alone.count(), before);
  pass(2, 100, 0);
  EXPECT_GT(ledger_.jobs().at(0).alone.count(), before);
}

TEST_F(Gains, TakeTheTimeAloneOfATargetWhereNoJobWasAlone) {
  add_client(1, 0, "train");
  slot(0).target.store(shm::Target{.per_mille = 990, .limit = 12'000'000}.pack());
  slot(0).alone_ns.store(10 * kMs);
  look();
  jobs_ = 20;
  job_ns_ = 12 * kMs;
  slot(0).target_jobs.store(1000);
  pass(10, 100, 500);
  EXPECT_NEAR(ledger_.gain().percent_of_alone, 120, 3);
  slot(0).alone_ns.store(0);
  pass(1, 100, 500);
  EXPECT_NEAR(ledger_.gain().percent_of_alone, 120, 3) << "the law learns anew for a moment";
  slot(0).target.store(shm::Target{.per_mille = 500, .limit = 12'000'000}.pack());
  pass(1, 100, 500);
  EXPECT_EQ(ledger_.gain().percent_of_alone, 0U) << "a p50 alone is no p99";
}

TEST_F(Gains, CountJobsInTimeSinceTheyBegan) {
  look();
  slot(0).target.store(shm::Target{.per_mille = 990, .limit = 12'000'000}.pack());
  slot(0).target_jobs.store(1000);
  slot(0).target_kept.store(992);
  pass(1, 100, 0);
  EXPECT_EQ(ledger_.gain().jobs_kept, 1U + 9920U);
  slot(0).target_jobs.store(10);
  slot(0).target_kept.store(0);
  pass(1, 100, 0);
  EXPECT_EQ(ledger_.gain().jobs_kept, 1U + 9920U) << "counters that go back are no jobs";
}

// Prevents: the p99 of a program that has ended, shown for the next one in its slot.
TEST_F(Gains, ForgetTheJobsOfClientsThatEnded) {
  learn_alone(10 * kMs);
  leave(0);
  look();
  EXPECT_TRUE(ledger_.jobs().empty());
  add_client(0, 5, "other");
  slot(0).info.store(shm::SlotInfo{shm::SlotState::kLive, 5, 0, 2}.pack());
  slot(0).job_times.clear();
  jobs_ = 0;
  pass(3, 0, 0);
  EXPECT_EQ(ledger_.jobs().at(0).alone.count(), 0U);
}

// Prevents: a bad hour of last year in the numbers of today, and numbers that begin at midnight.
TEST_F(Gains, AreOfTheLastDayOrTwo) {
  add_client(1, 0, "train");
  look();
  const int day = static_cast<int>(Ledger::kPeriodNs / kLook);
  pass(day + 10, 0, 800);
  EXPECT_EQ(ledger_.gain().since_ns, kNow);
  pass(day, 0, 200);
  const Gain gain = ledger_.gain();
  EXPECT_EQ(gain.since_ns, kNow + Ledger::kPeriodNs);
  EXPECT_NEAR(percent(gain.best_effort_ns, gain.shared_ns), 20, 1);
  EXPECT_NEAR(percent(ledger_.devices().at(0).best_effort.ns, ledger_.devices().at(0).shared_ns),
              50, 1)
      << "counters of the metrics never go back";
}

TEST_F(Gains, GoOnFromWhatAnEarlierControllerHad) {
  const Gain before{.since_ns = kNow - 100 * kLook,
                    .shared_ns = 100 * kLook,
                    .busy_ns = 80 * kLook,
                    .best_effort_ns = 60 * kLook,
                    .idle_before_ns = 45 * kLook};
  ledger_ = Ledger(before);
  add_client(1, 0, "train");
  look();
  pass(100, 200, 600);
  EXPECT_EQ(ledger_.gain().since_ns, before.since_ns);
  EXPECT_EQ(ledger_.gain().shared_ns, 200 * kLook);
  EXPECT_NEAR(percent(ledger_.gain().best_effort_ns, ledger_.gain().shared_ns), 60, 0.1);
  EXPECT_NEAR(percent(ledger_.gain().idle_before_ns, ledger_.gain().shared_ns), 52.5, 0.1);
}

// Prevents: numbers of last week, where controllers come and go; a time to come, from a fault.
TEST_F(Gains, OfEarlierControllersAreNotKeptForGood) {
  add_client(1, 0, "train");
  now_ns_ = kNow + 3 * Ledger::kPeriodNs;
  for (const std::uint64_t since_ns : {kNow, now_ns_ + kLook}) {
    ledger_ = Ledger({.since_ns = since_ns,
                      .shared_ns = 100 * kLook,
                      .busy_ns = 80 * kLook,
                      .best_effort_ns = 0});
    look();
    EXPECT_EQ(ledger_.gain().since_ns, now_ns_);
    EXPECT_EQ(ledger_.gain().shared_ns, 0U);
  }
}

// Prevents: "~3.0 s that were idle before" next to a server that is never idle, where the log of
// the GPU has 0.7 s and nothing was idle: time slices of the server in the samples of best effort.
TEST_F(Gains, AreUnknownWhereBestEffortIsOnlyMeasuredNextToWork) {
  add_client(1, 0, "train");
  run_on(0);
  look();
  for (int i = 0; i < 10; ++i) {
    slot(1).gpu_bound_ns.fetch_add(kLook / 10);
    pass(1, 900, 100);
  }
  EXPECT_EQ(ledger_.gain().best_effort_ns, Gain::kUnknown);
  EXPECT_EQ(ledger_.gain().busy_ns, 0U);
  const DeviceUse use = ledger_.devices().at(0);
  EXPECT_EQ(use.best_effort.ns, 0U) << "a guess in the metrics";
  EXPECT_EQ(use.best_effort.unknown_ns, 10 * kLook);
  EXPECT_EQ(use.idle_before_ns, 0U);
  EXPECT_EQ(use.critical.ns, 9 * kLook) << "the other part is known";
  EXPECT_EQ(use.critical.unknown_ns, 0U);
  pass(1, 900, 100, {{0, 0.9}});
  EXPECT_FALSE(ledger_.gain().measured);
}

TEST_F(Gains, MayHaveASmallPartThatIsABound) {
  add_client(1, 0, "train");
  look();
  for (int i = 0; i < 10; ++i) {
    slot(1).gpu_bound_ns.fetch_add(kLook / 1000 * 90);
    pass(1, 300, 500);
  }
  EXPECT_EQ(ledger_.gain().best_effort_ns, 5 * kLook);
}

// Prevents: GPU time that best effort took from a job without an end, said to have been idle.
TEST_F(Gains, WereIdleBeforeOnlyWhereNothingAboveWantedTheGpu) {
  add_client(1, 0, "train");
  run_on(0);
  look();
  pass(10, 900, 100);
  EXPECT_NEAR(percent(ledger_.gain().best_effort_ns, ledger_.gain().shared_ns), 10, 0.1);
  EXPECT_EQ(ledger_.gain().idle_before_ns, 0U);
  slot(0).gpu_share.store(950);  // its host leaves 5 % of the GPU
  ledger_ = Ledger();
  look();
  pass(10, 900, 100);
  EXPECT_NEAR(percent(ledger_.gain().idle_before_ns, ledger_.gain().shared_ns), 5, 0.1);
  slot(0).job.store(2);
  slot(0).gpu_share.store(0);
  ledger_ = Ledger();
  look();
  jobs_ = 40;
  job_ns_ = 20 * kMs;  // 40 % of the time
  pass(10, 400, 550);
  EXPECT_NEAR(percent(ledger_.gain().idle_before_ns, ledger_.gain().shared_ns), 55, 0.1);
  pass(10, 400, 700);
  EXPECT_NEAR(percent(ledger_.gain().idle_before_ns, ledger_.gain().shared_ns), 56.1, 0.3)
      << "60 of the 70 % in the second half, less because kernels overlap";
}

// Prevents: GPU time that is counted for two classes, or for none, when a program's priority
// changes, and that of a client whose clients come and go.
TEST_F(Gains, CountAllGpuTimeOnceWhateverIsSet) {
  for (std::uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    Ledger ledger;
    std::uint64_t happened_ns = 0;
    for (int i = 0; i < 4; ++i) {
      add_client(i, i == 0 ? 1 : 0, "a");
      slot(i).gpu_ns.store(kLook);
    }
    ledger.look(shm::take_snapshot(*board_, now_ns_));
    for (int step = 0; step < 50; ++step) {
      for (int i = 0; i < 4; ++i) {
        const std::uint64_t ns = random() % (kLook / 8);
        slot(i).gpu_ns.fetch_add(ns);
        slot(i).entries[0][shm::Count::kGated].fetch_add(1);
        happened_ns += ns;
      }
      // One stays critical, so that all time counts.
      const int changed = 1 + static_cast<int>(random() % 3);
      set_state(changed, shm::SlotState::kLive, static_cast<int>(random() % 3));
      slot(changed).target.store(random() % 2 == 0 ? 0 : shm::parse_target("p99=5ms")->pack());
      slot(changed).policy.store(shm::Policy{shm::PolicyKind::kNone}.pack());
      now_ns_ += kLook;
      ledger.look(shm::take_snapshot(*board_, now_ns_));
    }
    const DeviceUse use = ledger.devices().at(0);
    EXPECT_EQ(use.critical.ns + use.best_effort.ns, happened_ns) << "seed " << seed;
  }
}

// Prevents: a GPU that is 3000 % busy, or more idle time than time, because a client wrote
// nonsense.
TEST_F(Gains, StayWithinTheTimeWhateverClientsWrite) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const auto any = [&]() -> std::uint64_t {
      constexpr std::array<std::uint64_t, 4> kMost{2, kLook, 100 * kLook, ~std::uint64_t{0}};
      return random() % kMost[random() % kMost.size()];
    };
    Ledger ledger;
    for (int i = 0; i < 3; ++i) add_client(i, i == 0 ? 1 : 0, "a");
    for (int step = 0; step < 6; ++step) {
      for (int i = 0; i < 3; ++i) {
        slot(i).gpu_ns.store(any());
        slot(i).gpu_bound_ns.store(any());
        slot(i).job.store(any());
        slot(i).job_since_ns.store(any());
        slot(i).job_times.total_ns.store(any());
        slot(i).gpu_share.store(static_cast<std::uint32_t>(any()));
        slot(i).entries[0][shm::Count::kGated].store(any());
      }
      now_ns_ += kLook;
      ledger.look(shm::take_snapshot(*board_, now_ns_));
    }
    const Gain gain = ledger.gain();
    EXPECT_LE(gain.busy_ns, gain.shared_ns) << "seed " << seed;
    if (gain.best_effort_ns == Gain::kUnknown) continue;
    EXPECT_LE(gain.best_effort_ns, gain.busy_ns) << "seed " << seed;
    EXPECT_LE(gain.idle_before_ns, gain.best_effort_ns) << "seed " << seed;
  }
}

TEST_F(Gains, AreReadFromTheBoardAsTheyWereWritten) {
  const Gain gain{.since_ns = kNow,
                  .shared_ns = 5 * kLook,
                  .busy_ns = 4 * kLook,
                  .best_effort_ns = 3 * kLook,
                  .idle_before_ns = 2 * kLook,
                  .measured = true,
                  .p99_ns = 13'000'000,
                  .percent_of_alone = 117,
                  .jobs_kept = 9921};
  shm::gain_words(*board_).store(gain);
  EXPECT_EQ(shm::take_snapshot(*board_, kNow).gain, gain);
  Gain most = gain;
  most.p99_ns = ~std::uint64_t{0};
  most.percent_of_alone = ~0U;
  shm::gain_words(*board_).store(most);
  EXPECT_EQ(shm::gain_words(*board_).load().percent_of_alone, 65535U);
  EXPECT_EQ(shm::gain_words(*board_).load().jobs_kept, 9921U) << "a field spills into the next";
}

}  // namespace
}  // namespace sluice::controller::test
