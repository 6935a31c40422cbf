// A request that waits for the GPU in its middle is several jobs: the gates below stay closed
// between them. With the hooks, on the recording driver.
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "base/clock.hpp"
#include "shm/policy.hpp"
#include "shm/target.hpp"
#include "tests/intercept/above.hpp"

namespace sluice::intercept::test {
namespace {

using namespace std::chrono_literals;
using Closed = std::vector<bool>;

class BetweenJobs : public Above {
 protected:
  void start(const char* give = "0") {
    setenv("SLUICE_GIVE", give, 1);
    setenv("SLUICE_PREDICT", "0", 1);
    attach("gate", 5);
    low_.emplace(session_, 0);
    below().policy.store(shm::kDefaultPolicy.pack());
    fake::pause();
  }
  void TearDown() override {
    fake::resume();
    Above::TearDown();
  }
  /// A job that begins with this kernel. Returns whether its gates were closed while it ran.
  bool job(std::uintptr_t kernel_of) {
    below().busy_ns.store(base::monotonic_ns());
    kernel(kernel_of);
    const bool was_closed = closed();
    until_in_job_ = slot().early_hold_until_ns.load();
    fake::finish_all();  // not before, or the poll might end the job
    ::cuStreamSynchronize(nullptr);
    return was_closed;
  }
  /// Jobs one behind the other, and a pause. Returns whether the gates were closed behind each.
  Closed request(const std::vector<std::uintptr_t>& kernels) {
    Closed result;
    for (const std::uintptr_t each : kernels) {
      job(each);
      result.push_back(closed());
    }
    std::this_thread::sleep_for(1ms);
    return result;
  }
  /// A machine that stands still in the middle of a request makes a pause of it.
  bool eventually_closed_behind_all_but_the_last(const std::vector<std::uintptr_t>& kernels) {
    Closed wanted(kernels.size(), true);
    wanted.back() = false;
    for (int i = 0; i < 300; ++i) {
      if (request(kernels) == wanted) return true;
    }
    return false;
  }
  std::uint64_t until_in_job_ = 0;
  [[nodiscard]] bool holds() { return shm::is_active(slot().job.load()); }
};

TEST_F(BetweenJobs, OfARequestGatesStayClosed) {
  start();
  EXPECT_TRUE(eventually_closed_behind_all_but_the_last({11, 12, 13}));
  EXPECT_TRUE(eventually([this] { return !holds(); }));
}

// Prevents: those below wait for a job that does not come, or for a process that was stopped.
TEST_F(BetweenJobs, AJobThatDoesNotComeHoldsNobody) {
  start();
  ASSERT_TRUE(eventually_closed_behind_all_but_the_last({11, 12}));
  bool stayed = false;
  for (int i = 0; i < 100 && !stayed; ++i) {
    request({11, 12});
    job(11);
    const std::uint64_t until = slot().early_hold_until_ns.load();
    stayed = closed() && until != 0;
    EXPECT_LE(until, base::monotonic_ns() + 600'000);
    EXPECT_TRUE(eventually([this] { return !closed() && !holds(); })) << "it lapses";
  }
  EXPECT_TRUE(stayed);
}

// Prevents: a request counts as one job, or the time between its jobs counts.
TEST_F(BetweenJobs, EachIsStillAJob) {
  start();
  ASSERT_TRUE(eventually_closed_behind_all_but_the_last({11, 12}));
  const std::uint64_t before = slot().job_times.recent().ended;
  const auto begin = base::monotonic_ns();
  for (int i = 0; i < 10; ++i) request({11, 12});
  const auto recent = slot().job_times.recent();
  EXPECT_GE(recent.ended, before + 20) << "one that the poll has ended may go on as another";
  std::uint64_t sum = 0;
  for (std::size_t i = recent.ns.size() - 20; i < recent.ns.size(); ++i) sum += recent.ns[i];
  EXPECT_LT(sum, base::monotonic_ns() - begin - 10'000'000) << "without the pauses";
}

TEST_F(BetweenJobs, MarkedOnesAreWhatTheProgramSays) {
  start();
  for (int i = 0; i < 30; ++i) {
    for (int part = 0; part < 3; ++part) {
      sluice_job_end(sluice_job_begin(0));
      ASSERT_FALSE(closed());
    }
    std::this_thread::sleep_for(1ms);
  }
}

TEST_F(BetweenJobs, ATargetDecidesAlone) {
  start("5%");
  slot().requested_target.store(shm::parse_target("p99=50ms")->pack());
  ASSERT_TRUE(eventually([this] { return slot().target.load() != 0; }));
  for (int i = 0; i < 30; ++i) EXPECT_NE(request({11, 12, 13}), (Closed{true, true, false}));
}

TEST_F(BetweenJobs, UnderPublishedPoliciesGatesOpen) {
  start();
  below().policy.store(shm::parse_policy("event:4")->pack());
  for (int i = 0; i < 30; ++i) EXPECT_NE(request({11, 12, 13}), (Closed{true, true, false}));
}

// Prevents: another job than the expected one keeps its gates closed, although the law tries open
// ones.
TEST_F(BetweenJobs, ThatAreOthersThanExpectedBeginAsTheLawSays) {
  start("5%");
  for (int i = 0; i < 30; ++i)
    request({99});  // from now on every second one is a trial of open gates
  int tried = 0;
  int open = 0;
  for (std::uintptr_t first = 101; tried < 10 && first < 300; first += 2) {
    for (int i = 0; i < 8; ++i) request({first, first + 1});
    job(first);
    if (!closed()) continue;
    ++tried;
    open += job(99) ? 0 : 1;
    EXPECT_EQ(until_in_job_, 0U) << "it has begun";
    EXPECT_TRUE(eventually([this] { return !closed(); }));
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(tried, 10);
  EXPECT_GE(open, 3) << "those that are no references";
}

// Prevents: the gates count as closed behind a job that left them open, and never close in the
// next.
TEST_F(BetweenJobs, BehindOpenGatesTheNextJobClosesThem) {
  start("5%");
  for (int i = 0; i < 30; ++i) request({99});
  int open = 0;
  int closed_behind = 0;
  for (std::uintptr_t next = 101; open < 20 && next < 300; next += 2) {
    for (int i = 0; i < 5; ++i) {  // of the next kind nothing is tried yet
      const bool was_open = !job(99);
      const bool closes = job(next);
      open += was_open ? 1 : 0;
      closed_behind += was_open && closes ? 1 : 0;
      std::this_thread::sleep_for(1ms);
    }
  }
  EXPECT_GE(open, 20);
  EXPECT_GE(closed_behind, open / 4) << "a job that the poll has ended too early may go on";
}

}  // namespace
}  // namespace sluice::intercept::test
