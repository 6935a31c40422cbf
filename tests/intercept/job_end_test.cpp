// When a transparent job ends: work that comes at the worst moment must keep it open. The test is
// the driver, and the other thread too: what comes in between comes at exactly that moment.
#include <gtest/gtest.h>
#include <malloc.h>

#include <array>
#include <functional>
#include <utility>

#include "base/clock.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/driver/process.hpp"
#include "intercept/jobs/jobs.hpp"
#include "intercept/pacing/launch_count.hpp"
#include "tests/intercept/own_client.hpp"
#include "tests/intercept/stopped_clock.hpp"

namespace {

/// Runs inside order_launch_counts(), the last step before the end of a job.
std::function<void()> g_at_last_moment;

}  // namespace

// The linker puts this in front of sluice::intercept::order_launch_counts(), under names of its
// own. NOLINTBEGIN(readability-identifier-naming)
extern "C" void __real__ZN6sluice9intercept19order_launch_countsEv();
extern "C" void __wrap__ZN6sluice9intercept19order_launch_countsEv() {
  __real__ZN6sluice9intercept19order_launch_countsEv();
  if (g_at_last_moment) g_at_last_moment();
}
// NOLINTEND(readability-identifier-naming)

namespace sluice::intercept::test {
namespace {

std::function<CUresult()> g_answer;
std::function<void()> g_before_the_question;
int g_asked = 0;
int g_entered = 0;

/// A large array is mapped by itself.
std::size_t allocated() {
  const auto info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

/// Its thread refers to it for as long as the process lives.
Worker& idle_worker() {
  static Worker& worker = *std::make_unique<Worker>("idle", [] {
                             return Worker::Sleep{1'000'000'000, true};
                           }).release();
  return worker;
}

class JobEnd : public testing::Test {
 protected:
  JobEnd() {
    g_answer = [] { return CUDA_SUCCESS; };
    g_before_the_question = nullptr;
    g_asked = g_entered = 0;
    g_at_last_moment = nullptr;
    g_process.driver.cuThreadExchangeStreamCaptureMode = [](CUstreamCaptureMode*) {
      if (g_before_the_question) g_before_the_question();
      return CUDA_SUCCESS;
    };
    g_process.driver.cuCtxPushCurrent_v2 = [](CUcontext) {
      ++g_entered;
      return CUDA_SUCCESS;
    };
    g_process.driver.cuCtxPopCurrent_v2 = [](CUcontext*) { return CUDA_SUCCESS; };
    g_process.driver.cuStreamQuery = [](CUstream) {
      ++g_asked;
      return g_answer();
    };
    stream_.key.handle = reinterpret_cast<CUstream>(16);
  }
  /// A launch of a thread that remembers the stream: it is counted, and begins no job.
  void count_launch() { client_->slot().entries[0][shm::Count::kGated].fetch_add(1); }
  void begin() {
    count_launch();
    jobs_.touch(stream_);
    ASSERT_TRUE(client_.active());
  }

  OwnClient client_{5};
  Jobs jobs_{*client_, idle_worker(), idle_worker(), false};
  OwnStream stream_;
};

// Prevents: a server with two steps in flight whose host is slower than the GPU has a job for each
// step, or several, and best effort pays for gates that close again and again. The GPU is idle in
// each poll.
TEST_F(JobEnd, WorkThatTheProgramWillWaitForKeepsItOpen) {
  client_.board().slots[1].info.store(shm::SlotInfo{shm::SlotState::kLive, 0, 0, 1}.pack());
  client_.board().slots[1].policy.store(shm::kDefaultPolicy.pack());
  client_.board().used.store(3);
  client_.board().slots[0].requested_give.store(shm::pack_give(shm::kDefaultGive));
  Jobs jobs{*client_, idle_worker(), idle_worker(), false};
  const auto event = [](std::uintptr_t step) { return reinterpret_cast<CUevent>(64 * step); };
  const auto poll = [&] {
    jobs.poll(true);
    return jobs.need_polling() ? 1 : 0;
  };
  constexpr std::uintptr_t kSteps = 40;
  int open = 0;
  for (std::uintptr_t step = 1; step <= kSteps; ++step) {
    for (int part = 0; part < 3; ++part) {
      count_launch();
      jobs.touch(stream_);
      if (part < 2) open += poll();  // an allocator has asked for an event of its own
    }
    g_process.event_marks.note(event(step));
    g_now_ns += 300'000;
    Jobs::Wait wait = jobs.wait_begins();
    wait.given = g_process.event_marks.take(event(step - 1));
    jobs.wait_returned(wait, CUDA_SUCCESS);
    const int goes_on = poll();
    EXPECT_FALSE(step <= Steps::kInFlight && goes_on != 0) << "this may be by chance";
    open += goes_on;
  }
  EXPECT_GE(open, 75) << "of 105 polls";
  count_launch();
  jobs.touch(stream_);
  Jobs::Synchronising(jobs).returned(CUDA_SUCCESS, &stream_);
  jobs.touch(stream_);
  EXPECT_EQ(poll(), 0) << "it has waited for all, before that";
}

// Prevents: an open time of centuries. A watcher that let a launch through its slack looks at the
// job with the time of 5 ms ago; meanwhile the job has begun, and the program has set its target.
TEST_F(JobEnd, ALookWithTheTimeOfBeforeTheJobCountsNoTime) {
  shm::Board& board = *client_->seat().writable;
  board.slots[1].info.store(shm::SlotInfo{shm::SlotState::kLive, 0, 0, 1}.pack());
  board.used.store(3);
  board.slots[0].requested_give.store(0);  // with --give 0 no target leaves gates open
  jobs_.take_give();
  const auto ask_for = [&](const char* target) {
    client_->slot().requested_target.store(shm::parse_target(target)->pack());
    jobs_.take_target();
  };
  ask_for("p99=5s");
  for (std::size_t i = 0; i < TargetLaw::kFirst + TargetLaw::kEnough; ++i) {
    jobs_.begin();
    g_now_ns += 1'000'000;
    jobs_.end();
  }
  const std::uint64_t tick = base::monotonic_ns();
  g_now_ns += 100;
  jobs_.begin();
  ASSERT_TRUE(shm::is_active(client_->slot().open_job.load()));
  ask_for("none");
  jobs_.lapse(tick);
  EXPECT_TRUE(client_.active()) << "the gates are closed";
  EXPECT_LT(client_->slot().open_ns.load(), 1'000'000'000U);
  jobs_.end();
}

TEST_F(JobEnd, APollEndsTheJobWhoseWorkIsDone) {
  begin();
  g_answer = [] { return CUDA_ERROR_NOT_READY; };
  jobs_.poll();
  EXPECT_TRUE(client_.active());
  g_answer = [] { return CUDA_SUCCESS; };
  jobs_.poll();
  EXPECT_FALSE(client_.active());
  EXPECT_EQ(g_asked, 2);
}

// Prevents: a launch that passed before the poll changed the version runs in no job.
TEST_F(JobEnd, ALaunchCountedDuringTheQuestionKeepsTheJobOpen) {
  begin();
  g_answer = [this] {
    count_launch();
    return CUDA_SUCCESS;
  };
  jobs_.poll();
  EXPECT_TRUE(client_.active());
  g_answer = [] { return CUDA_SUCCESS; };
  jobs_.poll();
  EXPECT_EQ(g_asked, 1) << "asked while the program launches";
  jobs_.poll();
  EXPECT_FALSE(client_.active());
}

// Prevents: a crash of the driver in a context that another thread has just ended. The poll has
// chosen its streams, and asks without a lock.
TEST_F(JobEnd, AStreamThatEndsBeforeTheQuestionIsNotAsked) {
  begin();
  g_before_the_question = [this] {
    const QueryBan quiet = QueryBan::about_context(stream_.context);
    jobs_.forget(stream_);
  };
  jobs_.poll();
  EXPECT_EQ(g_entered, 0);
  EXPECT_EQ(g_asked, 0);
}

// Prevents: the same, after a job.
TEST_F(JobEnd, AStreamThatEndsIsNotAskedAfterItsJob) {
  begin();
  jobs_.poll();
  ASSERT_FALSE(client_.active());
  g_before_the_question = [this] { jobs_.forget(stream_); };
  jobs_.poll();
  EXPECT_EQ(g_entered, 1) << "by the first poll";
}

// Prevents: a program that synchronises one stream while another is busy grows by each synchronise,
// and the end of its next job is seen after as many questions. Seen to fail with a list of streams
// that every synchronise added to.
TEST_F(JobEnd, SynchronisesBesideABusyStreamLeaveNothingBehind) {
  OwnStream other;
  other.key.handle = reinterpret_cast<CUstream>(32);
  begin();
  const std::size_t before = allocated();
  for (int i = 0; i < 100'000; ++i) {
    jobs_.touch(other);
    Jobs::Synchronising synchronising(jobs_);
    synchronising.returned(CUDA_SUCCESS, &other);
  }
  EXPECT_TRUE(client_.active());
  EXPECT_LT(allocated(), before + 10'000);
  jobs_.poll();
  EXPECT_FALSE(client_.active());
  g_asked = 0;
  jobs_.poll();
  EXPECT_EQ(g_asked, 2) << "both streams of the last job, once";
}

// The same at priority 0, where nothing but a synchronise ends a job.
TEST_F(JobEnd, NothingGrowsInAJobOfPriorityZero) {
  OwnClient best_effort(0);
  Jobs jobs(*best_effort, idle_worker(), idle_worker(), false);
  OwnStream other;
  jobs.touch(stream_);
  const std::size_t before = allocated();
  for (int i = 0; i < 100'000; ++i) {
    jobs.touch(other);
    Jobs::Synchronising synchronising(jobs);
    synchronising.returned(CUDA_SUCCESS, &other);
  }
  EXPECT_LT(allocated(), before + 10'000);
  jobs.forget(stream_);
  jobs.forget(other);
}

// Prevents: a poll costs as many questions as streams are busy.
TEST_F(JobEnd, OneBusyStreamIsEnoughOfAnAnswer) {
  std::array<OwnStream, 100> others;
  begin();
  for (Stream& other : others) jobs_.touch(other);
  g_answer = [] { return CUDA_ERROR_NOT_READY; };
  jobs_.poll();
  EXPECT_EQ(g_asked, 1);
  g_answer = [] { return CUDA_SUCCESS; };
  jobs_.poll();
  EXPECT_EQ(g_asked, 102);
  EXPECT_FALSE(client_.active());
  for (Stream& other : others) jobs_.forget(other);
}

// Prevents: a stream that has ended, and whose handle may be another's, keeps a job open.
TEST_F(JobEnd, ALaunchThatOutlastsItsStreamMakesNothingBusy) {
  jobs_.forget(stream_);
  jobs_.touch(stream_);
  EXPECT_FALSE(client_.active());
}

// A copy is not counted as a launch.
TEST_F(JobEnd, WorkGivenDuringTheQuestionKeepsTheJobOpen) {
  begin();
  g_answer = [this] {
    jobs_.touch(stream_);
    return CUDA_SUCCESS;
  };
  jobs_.poll();
  EXPECT_TRUE(client_.active());
}

// Queries would contend with the synchronising thread inside the driver.
TEST_F(JobEnd, NothingIsAskedWhileAThreadSynchronises) {
  begin();
  Jobs::Synchronising synchronising(jobs_);
  jobs_.poll();
  EXPECT_EQ(g_asked, 0);
  synchronising.returned(CUDA_SUCCESS, &stream_);
  EXPECT_FALSE(client_.active());
}

// A question about a stream behind a closed gate may block inside the driver.
TEST_F(JobEnd, NothingIsAskedBehindTheOwnClosedGate) {
  begin();
  client_->slot().gate.store(2);
  jobs_.poll();
  EXPECT_EQ(g_asked, 0);
  client_->slot().gate.store(0);
  jobs_.poll();
  EXPECT_EQ(g_asked, 1);
}

TEST_F(JobEnd, ALaunchDuringASynchroniseKeepsTheJobOpen) {
  begin();
  Jobs::Synchronising synchronising(jobs_);
  count_launch();
  synchronising.returned(CUDA_SUCCESS, &stream_);
  EXPECT_TRUE(client_.active());
}

TEST_F(JobEnd, ASynchroniseThatFailsEndsNothing) {
  begin();
  Jobs::Synchronising synchronising(jobs_);
  synchronising.returned(CUDA_ERROR_LAUNCH_FAILED, &stream_);
  EXPECT_TRUE(client_.active());
}

// Prevents: a launch that is counted between the look at the counts and the new version.
TEST_F(JobEnd, ALaunchAtTheLastMomentKeepsTheJobOpen) {
  begin();
  std::uint64_t version = g_process.version.load();
  g_at_last_moment = [&] {
    EXPECT_NE(std::exchange(version, g_process.version.load()), version)
        << "a launch counted from now on would pass";
    count_launch();
  };
  Jobs::Synchronising synchronising(jobs_);
  synchronising.returned(CUDA_SUCCESS, &stream_);
  EXPECT_TRUE(client_.active());
  jobs_.poll();  // which looks anew: the program launches
  jobs_.poll();
  EXPECT_TRUE(client_.active());
}

// What threads remember of a job that is over is void, or their launches would begin none.
TEST_F(JobEnd, EveryEndVoidsWhatThreadsRemember) {
  begin();
  std::uint64_t version = g_process.version.load();
  jobs_.begin_anew();
  EXPECT_FALSE(client_.active());
  EXPECT_NE(g_process.version.load(), version);
}

}  // namespace
}  // namespace sluice::intercept::test
