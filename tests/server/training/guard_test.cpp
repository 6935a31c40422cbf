// Prevents: helpers of a training job, such as loaders of data, that go on when their job or their
// server has ended, and hold the GPU's memory with nobody to end them.
#include "server/training/guard.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <random>

#include "server/training/training.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/forked_child.hpp"
#include "tests/support/signal.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::server::training {
namespace {

namespace fs = std::filesystem;

/// Whether the process exists and is no zombie: its parent here may be a first process that reaps
/// nothing.
bool lives(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto end = text.rfind(')');
  return end != std::string::npos && text.size() > end + 2 && text[end + 2] != 'Z' &&
         text[end + 2] != 'X';
}

/// A job that starts helpers in the ways that programs have, at random.
class GuardTest : public testing::TestWithParam<unsigned> {
 protected:
  GuardTest() {
    write("helper", "echo $$ >> " + pids_ + "; exec sleep 300");
    const std::string helper = folder_.file("helper");
    const std::vector<std::string> ways{
        helper + " &",                                         // of the process group
        "(" + helper + " &)",                                  // whose parent has ended
        "setsid " + helper + " &",                             // of a session of its own
        "(setsid sh -c 'setsid " + helper + " &')",            // and without a parent
        "(setsid sh -c '" + helper + " & " + helper + "' &)",  // and with a helper of its own
        "env -i PATH=$PATH " + helper + " &",  // of the group, without the environment
        "nohup " + helper + " > /dev/null 2>&1 &",
    };
    std::mt19937 random(GetParam());
    std::string script = "touch " + pids_ + "\n";
    for (int i = 0; i < 5; ++i) {
      const std::string& way = ways[random() % ways.size()];
      script += way + "\n";
      count_ += way.find(helper) == way.rfind(helper) ? 1 : 2;
    }
    const std::string wait_for_all = "while [ $(wc -l < " + pids_ + ") -lt " +
                                     std::to_string(count_) + " ]; do sleep 0.01; done\n";
    write("job", script + wait_for_all + "echo started\nexec sleep 300");
    write("short", script + wait_for_all);
  }
  ~GuardTest() override {
    for (const pid_t pid : helpers()) {
      if (lives(pid)) kill(pid, SIGKILL);
    }
  }

  void write(const std::string& name, const std::string& script) {
    std::ofstream(folder_.file(name)) << "#!/bin/sh\n" << script << "\n";
    fs::permissions(folder_.file(name), fs::perms::owner_all);
  }
  std::vector<pid_t> helpers() const {
    std::vector<pid_t> found;
    std::ifstream file(pids_);
    for (pid_t pid = 0; file >> pid;) found.push_back(pid);
    return found;
  }
  std::size_t living() const {
    const auto all = helpers();
    return static_cast<std::size_t>(std::count_if(all.begin(), all.end(), lives));
  }
  /// Waits until all helpers live.
  void wait_for_start() {
    ASSERT_TRUE(test::eventually([&] { return helpers().size() == count_; }));
    ASSERT_EQ(living(), count_);
  }
  void expect_all_ended() {
    EXPECT_TRUE(test::eventually([&] { return living() == 0; })) << living() << " go on";
  }

  std::unique_ptr<Training> begin(std::atomic<int>* started = nullptr) {
    TrainingOptions options;
    options.mode = Mode::kColocateL1;
    options.store = folder_.path();
    options.wrapper = {"/usr/bin/env"};
    options.guard = SLUICE_TEST_GUARD;
    options.stop_s = 0.2;
    return std::make_unique<Training>(
        options, TrainingEvents{[started](const std::string& line) {
                                  if (started != nullptr && line.ends_with("started")) ++*started;
                                },
                                [](const Handover&) {}, [] {}});
  }

  const test::TempFolder folder_;
  const std::string pids_ = folder_.file(".pids");
  std::size_t count_ = 0;
};

TEST_P(GuardTest, EndsThemAfterASigkillOfTheServer) {
  test::ForkedChild server([&] {
    const auto training = begin();
    training->train({"job", "", ""}, [](const Status&) {});
    for (;;) pause();
    return 0;
  });
  wait_for_start();
  server.signal(SIGKILL);
  server.wait();
  expect_all_ended();
}

TEST_P(GuardTest, EndsThemAtAnOrderlyEndOfTheServer) {
  const auto training = begin();
  training->train({"job", "", ""}, [](const Status&) {});
  wait_for_start();
  training->stop();
  expect_all_ended();
}

TEST_P(GuardTest, EndsThemWithTheirJob) {
  const auto training = begin();
  std::atomic<int> ended = 0;
  training->train({"short", "", ""}, [&](const Status& status) { ended += status.ok() ? 1 : 100; });
  ASSERT_TRUE(test::eventually([&] { return ended != 0; }));
  EXPECT_EQ(ended, 1);
  expect_all_ended();
}

// Prevents: the end of one launch reaches the helpers of the next one.
TEST_P(GuardTest, ThoseOfTheNextLaunchLive) {
  std::atomic<int> started = 0;
  const auto training = begin(&started);
  training->train({"job", "", ""}, [](const Status&) {});
  ASSERT_TRUE(test::eventually([&] { return started == 1; }));
  const auto first = helpers();
  fs::remove(pids_);
  kill(training->status()["pid"].get<pid_t>(), SIGKILL);
  ASSERT_TRUE(test::eventually([&] { return started == 2; }));
  EXPECT_TRUE(test::eventually([&] { return std::none_of(first.begin(), first.end(), lives); }));
  EXPECT_EQ(living(), count_);
  training->stop();
  expect_all_ended();
}

// Prevents: a server whose guard somebody kills, or that lacks the program, trains no more.
TEST_P(GuardTest, TrainingGoesOnWithoutIt) {
  for (const char* const program : {"", "/bin/false"}) {
    Guard guard(program);
    EXPECT_NE(guard.begin(), guard.begin());
    guard.follow(1);
    guard.end();
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, GuardTest, testing::Range(0U, 4U));

}  // namespace
}  // namespace sluice::server::training
