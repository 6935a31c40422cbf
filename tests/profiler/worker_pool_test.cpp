// A worker that dies or hangs costs its own request, no other one, and is replaced. Prevents: a
// tuning run that ends, or waits indefinitely, because of one program.
#include "profiler/workers/worker_pool.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/clock.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::profiler {
namespace {

using How = WorkerAnswer::How;
using testing::StartsWith;

WorkerPool pool_of(std::size_t workers, double limit_s) {
  return WorkerPool(std::vector<std::vector<std::string>>(workers, {SLUICE_TEST_WORKER}), limit_s);
}

TEST(WorkerPool, AnswersComeToTheirRequests) {
  WorkerPool pool = pool_of(2, 60);
  std::vector<std::string> answers(2);
  for (std::size_t i = 0; i < 2; ++i) {
    pool.submit(i, "echo request " + std::to_string(i),
                [&answers, i](const WorkerAnswer& answer) { answers[i] = answer.text; });
  }
  EXPECT_EQ(pool.idle(), pool.size());
  while (pool.busy() > 0) ASSERT_TRUE(wait_for_answer({&pool}, 60));
  EXPECT_THAT(answers[0], StartsWith("request 0 "));
  EXPECT_THAT(answers[1], StartsWith("request 1 "));
  EXPECT_NE(answers[0].substr(10), answers[1].substr(10)) << "two processes";
}

TEST(WorkerPool, AWorkerThatDiesIsReportedAndReplaced) {
  WorkerPool pool = pool_of(1, 60);
  const WorkerAnswer died = ask(pool, 0, "die");
  EXPECT_EQ(died.how, How::kDied);
  EXPECT_EQ(died.text, "exited with 3");
  EXPECT_THAT(ask(pool, 0, "echo again").text, StartsWith("again "));
}

TEST(WorkerPool, AWorkerThatCannotStartSaysSoOnce) {
  const std::string said = testing::TempDir() + "/said-" + std::to_string(getpid());
  {
    WorkerPool pool({{"/bin/sh", "-c", "echo no GPU >> " + said}}, 60);
    EXPECT_EQ(ask(pool, 0, "echo hello").how, How::kDied);
  }
  EXPECT_EQ(test::read_file(said), "no GPU\n");
  std::filesystem::remove(said);
}

TEST(WorkerPool, AWorkerThatTakesTooLongIsKilledAndReplacedWhileOthersWork) {
  WorkerPool pool = pool_of(2, 0.5);
  const std::uint64_t begin = base::monotonic_ns();
  WorkerAnswer hung;
  pool.submit(0, "hang", [&](const WorkerAnswer& answer) { hung = answer; });
  EXPECT_THAT(ask(pool, 1, "echo meanwhile").text, StartsWith("meanwhile "));
  while (pool.busy() > 0) (void)wait_for_answer({&pool}, 60);
  EXPECT_EQ(hung.how, How::kTimeout);
  EXPECT_LT(base::monotonic_ns() - begin, 60'000'000'000U);
  EXPECT_THAT(ask(pool, 0, "echo again").text, StartsWith("again "));
}

TEST(WorkerPool, ACallbackMayAskTheSamePool) {
  // As the greeting of a new sluice-measure does, while answers of others are there to be read.
  WorkerPool pool = pool_of(2, 60);
  std::vector<std::string> order;
  pool.submit(0, "echo first", [&](const WorkerAnswer&) {
    order.push_back(ask(pool, 0, "echo second").text.substr(0, 6));
  });
  pool.submit(1, "echo other", [&](const WorkerAnswer&) { order.emplace_back("other"); });
  while (pool.busy() > 0) (void)wait_for_answer({&pool}, 60);
  EXPECT_THAT(order, testing::UnorderedElementsAre("second", "other"));
}

TEST(WorkerPool, AWorkerThatACallbackAskedAgainIsNotWaitedFor) {
  WorkerPool pool = pool_of(2, 1);
  std::string first;
  pool.submit(0, "echo first", [&](const WorkerAnswer&) {
    // Takes the other worker's answer, too, and asks it for something that never comes.
    first = ask(pool, 0, "echo second").text;
  });
  pool.submit(1, "echo other",
              [&](const WorkerAnswer&) { pool.submit(1, "hang", [](const WorkerAnswer&) {}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));  // both answers are there
  while (pool.busy() > 0) (void)wait_for_answer({&pool}, 60);
  EXPECT_THAT(first, StartsWith("second "));
}

TEST(WorkerPool, WaitingWithoutARequestEndsAtOnce) {
  WorkerPool pool = pool_of(1, 60);
  EXPECT_FALSE(wait_for_answer({&pool}, 600));
}

}  // namespace
}  // namespace sluice::profiler
