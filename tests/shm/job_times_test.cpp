#include "shm/job_times.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <thread>

namespace sluice::shm {
namespace {

TEST(JobTimes, CountsEachJobInTheBucketOfItsDuration) {
  const auto times = std::make_unique<JobTimes>();
  for (const std::uint64_t ns : {1U, 100'000U, 100'001U, 250'000U}) times->add(ns);
  times->add(20'000'000'000);
  EXPECT_EQ(times->buckets[0].load(), 2U) << "a bound belongs to its bucket";
  EXPECT_EQ(times->buckets[1].load(), 2U);
  EXPECT_EQ(times->buckets.back().load(), 1U);
  EXPECT_EQ(times->ended.load(), 5U);
  EXPECT_EQ(times->total_ns.load(), 20'000'450'002U);
  times->clear();
  EXPECT_EQ(times->ended.load() + times->total_ns.load() + times->buckets.back().load(), 0U);
}

TEST(JobTimes, KeepsTheLast64InOrder) {
  const auto times = std::make_unique<JobTimes>();
  EXPECT_TRUE(times->recent().ns.empty());
  for (std::uint64_t job = 1; job <= 3; ++job) times->add(job);
  EXPECT_EQ(times->recent().ns, (std::vector<std::uint64_t>{1, 2, 3}));
  for (std::uint64_t job = 4; job <= 1000; ++job) times->add(job);
  std::vector<std::uint64_t> last(JobTimes::kKept);
  std::iota(last.begin(), last.end(), 1000 - JobTimes::kKept + 1);
  EXPECT_EQ(times->recent().ns, last);
  EXPECT_EQ(times->recent().ended, 1000U);
}

// Prevents: the duration of one job appears as that of another, such as a later job or the job 64
// jobs ago.
TEST(JobTimes, AReaderNeverConfusesJobs) {
  const auto times = std::make_unique<JobTimes>();
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> looks{0};
  std::thread owner([&] {
    // The reader may not have run by then.
    for (std::uint64_t job = 1; job <= 2'000'000 || looks.load() == 0; ++job) times->add(job);
    over.store(true);
  });
  while (!over.load()) {
    const JobTimes::Recent recent = times->recent();
    ++looks;
    for (std::size_t i = 0; i < recent.ns.size(); ++i) {
      ASSERT_EQ(recent.ns[i], recent.ended - recent.ns.size() + 1 + i) << "look " << looks;
    }
  }
  owner.join();
  EXPECT_GT(looks, 0U);
}

}  // namespace
}  // namespace sluice::shm
