// Prevents: a job that runs another file than the one named, a client that starts a program outside
// of the store, and arguments that reach the program changed.
#include "server/training/train_store.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/error.hpp"

namespace sluice::server::training {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return "";
}

class TrainStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("train-" + std::to_string(getpid()));
    fs::create_directories(folder_ / "folder");
    add("resnet.py", false);
    add("swin", true);
    add(".hidden", true);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void add(const std::string& name, bool executable) {
    std::ofstream(folder_ / name) << "#!/bin/true\n";
    if (executable) fs::permissions(folder_ / name, fs::perms::owner_all);
  }
  [[nodiscard]] TrainStore store() const { return {folder_, "python3.11"}; }

  fs::path folder_;
};

TEST_F(TrainStoreTest, NamesEveryFileByItsStem) {
  EXPECT_THAT(store().jobs(), ElementsAre("resnet", "swin"));
}

TEST_F(TrainStoreTest, RunsScriptsByPythonAndOtherFilesThemselves) {
  EXPECT_THAT(store().command("resnet", "batch-size=8, num-epoch = 3", Mode::kColocateL2),
              ElementsAre("python3.11", (folder_ / "resnet.py").string(), "--batch-size", "8",
                          "--num-epoch", "3", "--mode", "colocate-l2"));
  EXPECT_THAT(store().command("swin", "", Mode::kTaskSwitchL1),
              ElementsAre((folder_ / "swin").string(), "--mode", "task-switch-l1"));
}

TEST_F(TrainStoreTest, ValuesArePassedAsTheyAre) {
  EXPECT_THAT(parse_train_args("a=x y; rm -rf /, b="),
              ElementsAre("--a", "x y; rm -rf /", "--b", ""));
}

// Prevents: a client gives the trainer an option that nobody meant it to have.
TEST_F(TrainStoreTest, AValueIsNoOption) {
  for (const char* const args : {"a=--exec", "a=-c", "a= -", "a=1, b=-x", "a=-1x"}) {
    EXPECT_THAT(error_of([&] { static_cast<void>(parse_train_args(args)); }),
                HasSubstr("looks like an option"))
        << args;
  }
  EXPECT_THAT(parse_train_args("lr=-0.5, n=-3, e=-1e-4"),
              ElementsAre("--lr", "-0.5", "--n", "-3", "--e", "-1e-4"));
  EXPECT_THAT(error_of([] { static_cast<void>(parse_train_args("mode=normal")); }),
              HasSubstr("mode"));
  for (const std::string& args : {std::string("a=1\n--b"), std::string("a=1\0x", 5)}) {
    EXPECT_THAT(error_of([&] { static_cast<void>(parse_train_args(args)); }),
                HasSubstr("control character"));
  }
}

TEST_F(TrainStoreTest, RefusesWhatIsNoJob) {
  const auto refusal = [&](const std::string& job) {
    return error_of([&] { static_cast<void>(store().command(job, "", Mode::kNormal)); });
  };
  EXPECT_THAT(refusal("resnt"), HasSubstr("did you mean 'resnet'?"));
  EXPECT_THAT(refusal("../" + folder_.filename().string() + "/swin"),
              HasSubstr("unknown training job"));
  EXPECT_THAT(refusal("folder"), HasSubstr("unknown training job"));
  EXPECT_THAT(refusal(""), HasSubstr("unknown training job"));
  add("resnet", true);
  EXPECT_THAT(refusal("resnet"), HasSubstr("rename one"));
  add("plain", false);
  EXPECT_THAT(refusal("plain"), HasSubstr("chmod +x"));
}

TEST_F(TrainStoreTest, RefusesDamagedArguments) {
  for (const char* const args : {"batch-size", "=3", "--a=3", "a b=3", "a=1, ,b=2"}) {
    EXPECT_THAT(error_of([&] { static_cast<void>(parse_train_args(args)); }),
                HasSubstr("name=value"))
        << args;
  }
}

// Prevents: a client's arguments come back whole in the message, and fill memory until they run.
TEST_F(TrainStoreTest, ArgumentsAndTheirMessagesAreBounded) {
  const auto refusal = [](const std::string& args) {
    return error_of([&] { static_cast<void>(parse_train_args(args)); });
  };
  EXPECT_EQ(parse_train_args("a=" + std::string((64 << 10) - 2, 'x')).size(), 2U);
  EXPECT_THAT(refusal("a=" + std::string(64 << 10, 'x')), HasSubstr("at most 65536"));
  EXPECT_LT(refusal(std::string(60 << 10, 'x')).size(), 300U);
}

TEST_F(TrainStoreTest, AMissingFolderIsNamed) {
  EXPECT_THAT(error_of([] { TrainStore("/nowhere", ""); }), HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace sluice::server::training
