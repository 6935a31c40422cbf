// Prevents: jobs that have no answer or two, trainers that outlive their server, lines that are
// lost, killed jobs that do not begin anew, and a mode that lets inference run while a killed
// trainer still exists.
#include "server/training/training.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>

#include "base/clock.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/shared.hpp"
#include "tests/support/signal.hpp"

namespace sluice::server::training {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Contains;
using testing::HasSubstr;

constexpr seconds kPatience{20};

/// Training of shell scripts, without a board.
class TrainingTest : public testing::Test {
 protected:
  void SetUp() override {
    static int count = 0;
    folder_ = fs::path(testing::TempDir()) /
              ("training-" + std::to_string(getpid()) + "-" + std::to_string(count++));
    fs::create_directories(folder_);
  }
  void TearDown() override {
    training_.reset();
    fs::remove_all(folder_);
  }

  void add(const std::string& name, const std::string& script) {
    std::ofstream(folder_ / name) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(folder_ / name, fs::perms::owner_all);
  }
  void begin(Mode mode) {
    TrainingOptions options;
    options.mode = mode;
    options.store = folder_;
    options.wrapper = {"/usr/bin/env"};
    options.stop_s = 0.2;
    training_.emplace(options,
                      TrainingEvents{[this](const std::string& line) { log(line); },
                                     [this](const Handover& handover) { handover_ = handover; },
                                     [this] { ++may_run_; }});
  }
  std::future<Status> train(const std::string& job, const std::string& args = "",
                            const std::string& id = "") {
    auto promise = std::make_shared<std::promise<Status>>();
    auto answer = promise->get_future();
    training_->train({job, args, id},
                     [promise](const Status& status) { promise->set_value(status); });
    return answer;
  }
  Status answer_of(std::future<Status> answer) {
    if (answer.wait_for(kPatience) != std::future_status::ready) {
      ADD_FAILURE() << "no answer";
      return {Code::kInternal, "no answer"};
    }
    return answer.get();
  }
  bool eventually(const std::function<bool()>& holds) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!holds()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(milliseconds(2));
    }
    return true;
  }
  void log(const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(line);
  }
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  bool said(const std::string& part) {
    const auto all = lines();
    return std::any_of(all.begin(), all.end(),
                       [&](const auto& line) { return line.find(part) != std::string::npos; });
  }
  std::string state() { return training_->status()["state"]; }
  pid_t pid() { return training_->status().value("pid", 0); }

  fs::path folder_;
  std::optional<Training> training_;
  std::atomic<int> may_run_{0};
  Handover handover_;  ///< The last one; may_run_ follows it.
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

TEST_F(TrainingTest, AJobRunsWithItsArgumentsAndItsLinesAreLogged) {
  add("job", "echo \"$@\"; printf 'no newline'");
  begin(Mode::kColocateL1);
  EXPECT_TRUE(answer_of(train("job", "a=1, b=2")).ok());
  EXPECT_THAT(lines(), Contains("[PyTorch backend] Train: --a 1 --b 2 --mode colocate-l1"));
  EXPECT_THAT(lines(), Contains("[PyTorch backend] Train: no newline"));
  EXPECT_TRUE(eventually([&] { return said("train ok"); }));
}

TEST_F(TrainingTest, AFailedJobIsAnErrorAndTheNextOneRuns) {
  add("fails", "exit 3");
  add("works", "true");
  begin(Mode::kColocateL1);
  auto first = train("fails");
  auto second = train("works");
  const Status failed = answer_of(std::move(first));
  EXPECT_EQ(failed.code, Code::kInternal);
  EXPECT_THAT(failed.message, HasSubstr("exited with 3"));
  EXPECT_TRUE(answer_of(std::move(second)).ok());
  EXPECT_EQ(answer_of(train("nothing")).code, Code::kInvalidArgument);
}

TEST_F(TrainingTest, AKilledJobStartsAgainFromScratch) {
  add("job", "echo x >> " + (folder_ / ".count").string() + "; [ $(wc -l < " +
                 (folder_ / ".count").string() + ") = 2 ] || sleep 60");
  begin(Mode::kColocateL1);
  auto answer = train("job");
  // The shell opens the file before it writes the line.
  const auto counted = [&] {
    return fs::exists(folder_ / ".count") && fs::file_size(folder_ / ".count") > 0;
  };
  ASSERT_TRUE(eventually([&] { return counted() && pid() != 0; }));
  kill(pid(), SIGKILL);
  EXPECT_TRUE(answer_of(std::move(answer)).ok());
  EXPECT_EQ(training_->status()["launches"], 2);
  EXPECT_EQ(training_->memory().process, 2U) << "an order for the first one is not for the second";
}

// Prevents: a program that the kernel kills for its memory is started as fast as the machine can.
TEST_F(TrainingTest, AProgramThatIsKilledAtOnceIsNotStartedAllTheTime) {
  add("job", "kill -9 $$");
  begin(Mode::kColocateL1);
  auto answer = train("job");
  ASSERT_TRUE(eventually([&] { return said("it starts again"); }));
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_LE(training_->status()["launches"], 2);
  EXPECT_TRUE(eventually([&] { return training_->status()["launches"] >= 2; }));
  EXPECT_TRUE(training_->stop_job("job").ok()) << "also while it waits for its launch";
  EXPECT_EQ(answer_of(std::move(answer)).code, Code::kCancelled);
}

// Prevents: a trainer that is stuck in the driver keeps the server from ending. Here the process
// has a tracer that does not look: until then, its parent does not learn of its end.
TEST_F(TrainingTest, AProcessThatDoesNotEndIsLeftBehind) {
  add("job", "sleep 60");
  begin(Mode::kColocateL1);
  auto answer = train("job");
  ASSERT_TRUE(eventually([&] { return pid() != 0; }));
  const pid_t stuck = pid();
  const test::Signal tried;
  const test::Shared<bool> traced;
  test::ForkedChild tracer([&] {
    *traced = ptrace(PTRACE_SEIZE, stuck, nullptr, nullptr) == 0;
    tried.raise();
    for (;;) pause();
    return 0;
  });
  ASSERT_TRUE(tried.wait());
  if (!*traced) GTEST_SKIP() << "processes may not be traced here";
  training_->stop();
  EXPECT_EQ(answer_of(std::move(answer)).code, Code::kUnavailable);
  EXPECT_TRUE(said("was killed and does not end; the server ends without it"));
  training_.reset();
  tracer.signal(SIGKILL);
  tracer.wait();
  EXPECT_EQ(waitpid(stuck, nullptr, 0), stuck);
}

TEST_F(TrainingTest, AnotherSignalEndsTheJob) {
  add("job", "echo up; exec sleep 60");
  begin(Mode::kColocateL1);
  auto answer = train("job");
  ASSERT_TRUE(eventually([&] { return said("up"); }));
  kill(pid(), SIGTERM);
  const Status status = answer_of(std::move(answer));
  EXPECT_EQ(status.code, Code::kInternal);
  EXPECT_THAT(status.message, HasSubstr("signal 15"));
}

TEST_F(TrainingTest, JobsAreStoppedWhereverTheyAre) {
  add("deaf", "trap '' TERM; echo up; while true; do sleep 1; done");
  add("other", "true");
  begin(Mode::kColocateL1);
  auto running = train("deaf");
  auto waiting = train("other");
  ASSERT_TRUE(eventually([&] { return said("up"); }));
  EXPECT_TRUE(training_->stop_job("other").ok());
  EXPECT_TRUE(training_->stop_job("deaf").ok()) << "SIGKILL follows after stop_s";
  EXPECT_EQ(answer_of(std::move(running)).code, Code::kCancelled);
  EXPECT_EQ(answer_of(std::move(waiting)).code, Code::kCancelled);
  EXPECT_EQ(training_->stop_job("deaf").code, Code::kNotFound);
}

// Prevents: a client that ends stops the jobs of other clients, because they have the same name.
TEST_F(TrainingTest, AnIdStopsTheJobsOfOneClient) {
  add("job", "echo up; exec sleep 60");
  begin(Mode::kColocateL1);
  auto theirs = train("job", "", "them");
  auto ours = train("job", "", "us");
  auto nobodys = train("job");
  ASSERT_TRUE(eventually([&] { return said("up"); }));
  EXPECT_EQ(training_->stop_job("job", "nobody").code, Code::kNotFound);
  EXPECT_EQ(training_->stop_job("", "nobody").code, Code::kNotFound);
  EXPECT_EQ(training_->stop_job("other", "us").code, Code::kNotFound);
  EXPECT_TRUE(training_->stop_job("job", "us").ok());
  EXPECT_EQ(answer_of(std::move(ours)).code, Code::kCancelled);
  EXPECT_EQ(training_->status()["jobs"].size(), 2U);
  EXPECT_TRUE(training_->stop_job("", "them").ok());
  EXPECT_EQ(answer_of(std::move(theirs)).code, Code::kCancelled);
  EXPECT_TRUE(training_->stop_job("job").ok()) << "without an id, all jobs of the name";
  EXPECT_EQ(answer_of(std::move(nobodys)).code, Code::kCancelled);
}

// Prevents: a client that has stopped its job waits until the job in front of it has ended.
TEST_F(TrainingTest, AJobThatIsStoppedInTheQueueIsAnsweredAtOnce) {
  add("long", "echo up; exec sleep 60");
  add("other", "true");
  begin(Mode::kColocateL1);
  auto running = train("long");
  auto stopped = train("other");
  auto last = train("other");
  ASSERT_TRUE(eventually([&] { return said("up"); }));
  const pid_t child = pid();
  EXPECT_TRUE(training_->stop_job("other").ok());
  EXPECT_EQ(answer_of(std::move(stopped)).code, Code::kCancelled);
  EXPECT_EQ(answer_of(std::move(last)).code, Code::kCancelled);
  EXPECT_EQ(pid(), child) << "the job in front goes on";
  EXPECT_EQ(training_->status()["jobs"].size(), 1U);
}

// Prevents: the jobs of one client, and their arguments, take all memory.
TEST_F(TrainingTest, JobsThatWaitAreBounded) {
  add("long", "exec sleep 60");
  begin(Mode::kColocateL1);
  std::vector<std::future<Status>> accepted;
  for (int i = 0; i < 64; ++i) accepted.push_back(train("long"));
  const Status refused = answer_of(train("long"));
  EXPECT_EQ(refused.code, Code::kResourceExhausted);
  EXPECT_THAT(refused.message, HasSubstr("64 training jobs"));
  EXPECT_EQ(answer_of(train("long", "a=" + std::string(100'000, 'x'))).code,
            Code::kInvalidArgument);
  EXPECT_EQ(answer_of(train("long", "", std::string(200, 'x'))).code, Code::kInvalidArgument);
  training_->stop();
  for (auto& each : accepted) EXPECT_EQ(answer_of(std::move(each)).code, Code::kUnavailable);
}

TEST_F(TrainingTest, StopLeavesNoProcessAndAnswersAll) {
  add("deaf", "trap '' TERM; echo up; while true; do sleep 1; done");
  begin(Mode::kColocateL1);
  auto running = train("deaf");
  auto waiting = train("deaf");
  ASSERT_TRUE(eventually([&] { return said("up"); }));
  const pid_t child = pid();
  training_->stop();
  EXPECT_NE(kill(child, 0), 0);
  EXPECT_EQ(answer_of(std::move(running)).code, Code::kUnavailable);
  EXPECT_EQ(answer_of(std::move(waiting)).code, Code::kUnavailable);
  EXPECT_EQ(answer_of(train("deaf")).code, Code::kUnavailable);
}

TEST_F(TrainingTest, TaskSwitchL3KillsBeforeInferenceRunsAndLaunchesAfterIt) {
  add("job", "echo up; exec sleep 60");
  begin(Mode::kTaskSwitchL3);
  auto answer = train("job");
  ASSERT_TRUE(eventually([&] { return said("up"); }));
  const pid_t child = pid();
  const std::uint64_t before = base::monotonic_ns();
  EXPECT_FALSE(training_->take());
  ASSERT_TRUE(eventually([&] { return may_run_ == 1; }));
  EXPECT_NE(kill(child, 0), 0) << "the process is gone, and so is its memory";
  EXPECT_GE(handover_.at_ns, before);
  EXPECT_LE(handover_.at_ns + handover_.obey.drop_ns, base::monotonic_ns());
  EXPECT_TRUE(training_->take());
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(pid(), 0) << "not while inference has work";
  training_->give_back();
  EXPECT_TRUE(eventually([&] { return pid() != 0; }));
  EXPECT_EQ(training_->status()["kills"], 1);
}

TEST_F(TrainingTest, AProgramThatKnowsNoOrdersIsNotOrdered) {
  add("job", "echo up; exec sleep 60");
  begin(Mode::kTaskSwitchL1);
  auto answer = train("job");
  ASSERT_TRUE(eventually([&] { return said("up"); }));
  EXPECT_TRUE(training_->take());
  EXPECT_EQ(training_->order(shm::MemoryOrder::kDrop), 0);
  EXPECT_TRUE(training_->wait_done(0, base::monotonic_ns()));
}

TEST_F(TrainingTest, AProgramThatCannotBeStartedIsAnError) {
  add("job", "true");
  std::ofstream(folder_ / "job") << "#!/no/such/interpreter\n";
  begin(Mode::kColocateL1);
  const Status status = answer_of(train("job"));
  EXPECT_EQ(status.code, Code::kInternal);
  EXPECT_THAT(status.message, HasSubstr("exited with 127"));
}

// Prevents: a program that prints without an end keeps the thread and the lock for which requests
// wait, and fills the memory with its lines.
TEST(Process, MuchOutputIsReadInParts) {
  Process process({"/usr/bin/env", "yes", "a line as long as most are"}, {});
  std::size_t bytes = 0;
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (bytes == 0 && std::chrono::steady_clock::now() < until) {
    process.read_lines([&](const std::string& line) { bytes += line.size() + 1; });
  }
  EXPECT_GT(bytes, 0U);
  EXPECT_LE(bytes, std::size_t{64} << 10U);
  kill(process.pid(), SIGKILL);
  ASSERT_TRUE(
      test::eventually([&] { return process.ended([](const std::string&) {}).has_value(); }));
}

TEST_F(TrainingTest, WithoutAStoreThereIsNoJob) {
  training_.emplace(TrainingOptions{}, TrainingEvents{});
  EXPECT_EQ(answer_of(train("job")).code, Code::kNotFound);
}

}  // namespace
}  // namespace sluice::server::training
