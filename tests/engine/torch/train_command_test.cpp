// `sluice train` as a program: its lines, its checkpoints whenever it is killed, orders that come
// at random. On the CPU, with the stand-in of the interposer preloaded.
#include <gmock/gmock.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <random>
#include <thread>

#include "base/child.hpp"
#include "tests/support/process.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::test {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class TrainCommand : public testing::Test {
 protected:
  static std::vector<std::string> command(std::vector<std::string> args) {
    args.insert(args.begin(), SLUICE_TEST_TRAIN_PROGRAM);
    args.insert(args.end(), {"--store", SLUICE_TEST_TRAIN_MODELS, "--device", "cpu"});
    return args;
  }
  static base::Captured train(std::vector<std::string> args,
                              std::vector<std::string> environment = {}) {
    environment.emplace_back("OMP_NUM_THREADS=1");
    return base::capture(command(std::move(args)), std::move(environment));
  }
  /// A run that must fail with this exit code. Returns its only line.
  static std::string refused(int exit_code, std::vector<std::string> args) {
    const base::Captured ended = train(std::move(args));
    EXPECT_EQ(ended.exit_code, exit_code) << ended.err;
    EXPECT_EQ(std::ranges::count(ended.err, '\n'), 1) << ended.err;
    return ended.err;
  }
  /// The environment in which orders come at random.
  [[nodiscard]] std::vector<std::string> orders(const std::string& plan) const {
    return {"LD_PRELOAD=" SLUICE_TEST_FAKE_ORDERS, "SLUICE_FAKE_ORDERS=" + plan,
            "SLUICE_FAKE_REPORT=" + folder_.file("orders.txt")};
  }
  static std::string last_line(const std::string& text) {
    const auto end = text.find_last_not_of('\n');
    return text.substr(text.rfind('\n', end) + 1, end - text.rfind('\n', end));
  }
  /// When the file was last written; the beginning of time if there is none.
  static std::filesystem::file_time_type written(const std::string& file) {
    std::error_code none;
    return std::filesystem::last_write_time(file, none);
  }
  [[nodiscard]] std::string checkpoint() const { return folder_.file("state"); }

  TempFolder folder_;
};

TEST_F(TrainCommand, PrintsThePublishedLines) {
  const base::Captured ended = train({"conv", "--batch-size", "6", "--micro-batch-size", "4",
                                      "--num-epoch", "2", "--steps-per-epoch", "3"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_THAT(ended.out,
              ContainsRegex(R"(^\[conv epoch 0\] [0-9.]+s \| batch cnt 3 avg [0-9.]+ms \| )"
                            R"(try 6 kill 0 finish 6 \| batch-size 6 \| micro-batch-size 3 \| )"
                            R"(memory 0.00Gb \| wait_bs_valid 0.000s)"));
  EXPECT_THAT(ended.out, HasSubstr("\n[conv epoch 1] "));
  EXPECT_THAT(
      last_line(ended.out),
      ContainsRegex("^trained conv: 2 epochs of 3 steps, loss [0-9.]+ -> [0-9.]+, parameters "
                    "[0-9a-f]{16}$"));
}

TEST_F(TrainCommand, AllocatorSettingsThatLibTorchRefusesAreNamed) {
  const base::Captured ended = base::capture(
      {SLUICE_TEST_TRAIN_PROGRAM, "conv", "--store", SLUICE_TEST_TRAIN_MODELS, "--device", "cuda"},
      {"PYTORCH_ALLOC_CONF=large_segment_size_mb:x"});
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(ended.err, StartsWith("sluice train: PYTORCH_ALLOC_CONF: "));
}

TEST_F(TrainCommand, RandomOrdersChangeNoBit) {
  const std::vector<std::string> args{"conv", "--batch-size", "8", "--micro-batch-size",
                                      "2",    "--num-epoch",  "3", "--steps-per-epoch",
                                      "10"};
  const base::Captured alone = train(args);
  const base::Captured ordered = train(args, orders("seed=3 orders=60 every=2 kinds=1234"));
  ASSERT_EQ(ordered.exit_code, 0) << ordered.err;
  EXPECT_EQ(last_line(ordered.out), last_line(alone.out));
  EXPECT_THAT(ordered.out, ContainsRegex("batch [0-9]+ adjust : bs 2 -> 2 \\| [0-9.]+ms \\| "));
  EXPECT_THAT(read_file(folder_.file("orders.txt")), StartsWith("given 60 "));
  EXPECT_THAT(read_file(folder_.file("orders.txt")), HasSubstr(" mistakes 0 pending 0"));
}

TEST_F(TrainCommand, ADroppedEpochBeginsAgain) {
  std::vector<std::string> args{"conv", "--batch-size",      "8", "--num-epoch",
                                "2",    "--steps-per-epoch", "4"};
  const base::Captured alone = train(args);
  args.insert(args.end(), {"--mode", "task-switch-l2"});
  const base::Captured ordered = train(args, orders("seed=1 orders=3 every=4 kinds=4"));
  ASSERT_EQ(ordered.exit_code, 0) << ordered.err;
  EXPECT_THAT(ordered.out, HasSubstr("epoch 0 dropped\n"));
  const auto parameters = [](const std::string& out) {
    return out.substr(out.rfind(" parameters "));
  };
  EXPECT_EQ(parameters(ordered.out), parameters(alone.out));
}

TEST_F(TrainCommand, GoesOnFromACheckpointToTheBit) {
  const std::vector<std::string> three{"conv", "--optimizer",       "adamw", "--num-epoch",
                                       "3",    "--steps-per-epoch", "4"};
  const base::Captured whole = train(three);
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  auto first = three;
  first[4] = "2";
  first.insert(first.end(), {"--checkpoint", checkpoint()});
  ASSERT_EQ(train(first).exit_code, 0);
  auto second = three;
  second.insert(second.end(), {"--checkpoint", checkpoint(), "--resume"});
  const base::Captured resumed = train(second);
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, Not(HasSubstr("epoch 1]")));
  EXPECT_THAT(resumed.out, HasSubstr("[conv epoch 2]"));
  EXPECT_EQ(resumed.out.substr(resumed.out.rfind(' ')), whole.out.substr(whole.out.rfind(' ')));
  EXPECT_FALSE(std::filesystem::exists(checkpoint() + ".part"));
}

TEST_F(TrainCommand, ACheckpointIsWholeWheneverTheTrainingIsKilled) {
  const std::vector<std::string> args{"conv", "--num-epoch", "40", "--steps-per-epoch", "10"};
  const base::Captured whole = train(args);
  auto resumed = args;
  resumed.insert(resumed.end(),
                 {"--checkpoint", checkpoint(), "--checkpoint-steps", "1", "--resume"});
  std::mt19937 random(std::random_device{}());
  auto seen = std::filesystem::file_time_type::min();
  for (int kill = 0; kill < 5; ++kill) {
    Process training(command(resumed), {.environment = {"OMP_NUM_THREADS=1"}});
    // After a new checkpoint: before, there is nothing to tear.
    EXPECT_TRUE(eventually([&] { return written(checkpoint()) > seen; }, 60s));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20'000));
    training.signal(SIGKILL);
    training.finish();
    seen = written(checkpoint());
  }
  const base::Captured ended = train(resumed);
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out.substr(ended.out.rfind(' ')), whole.out.substr(whole.out.rfind(' ')));
}

TEST_F(TrainCommand, ASignalWritesACheckpoint) {
  Process training(command({"conv", "--steps-per-epoch", "1000000", "--checkpoint", checkpoint()}),
                   {.environment = orders("seed=1 orders=1 every=1 kinds=2")});
  EXPECT_THAT(training.read_line(), StartsWith("batch 0 adjust : "));
  EXPECT_FALSE(std::filesystem::exists(checkpoint()));
  training.signal(SIGTERM);
  const base::Captured ended = training.finish();
  EXPECT_EQ(ended.exit_code, 128 + SIGTERM) << ended.err;
  EXPECT_EQ(ended.err, "sluice train: interrupted; --resume goes on from " + checkpoint() + "\n");
  EXPECT_TRUE(std::filesystem::exists(checkpoint()));
}

TEST_F(TrainCommand, ErrorsNameWhatToDo) {
  EXPECT_THAT(refused(2, {"inference"}),
              HasSubstr("create it with: sluice models export inference --train --store "));
  EXPECT_THAT(refused(2, {"frozen"}), HasSubstr("export the model with --train"));
  EXPECT_THAT(refused(2, {"conv", "--resume"}), HasSubstr("--resume needs --checkpoint FILE"));
  EXPECT_THAT(refused(2, {"conv", "--optimizer", "adam"}), HasSubstr("adamw"));
  EXPECT_THAT(refused(1, {"conv", "--checkpoint", "/nowhere/state"}), HasSubstr("/nowhere/state"));
  const std::string torn = folder_.write("torn", "half a checkpoint");
  EXPECT_THAT(refused(1, {"conv", "--checkpoint", torn, "--resume"}),
              HasSubstr(torn + " cannot be resumed from"));
}

}  // namespace
}  // namespace sluice::test
