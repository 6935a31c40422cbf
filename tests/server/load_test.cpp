// Loads next to what is served: versions, swaps, models that come later. No request may be lost.
#include <map>
#include <thread>

#include "tests/server/server_test.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class LoadTest : public ServerTest {
 protected:
  /// The versions that the files of each model have.
  std::map<std::string, std::vector<std::uint64_t>> files_;

  Server& start_versions(std::vector<ModelConfig> models) {
    ServerOptions options;
    options.find_versions = [this](const ModelConfig& config) {
      std::vector<ModelVersion> found;
      for (const auto number : files_.at(config.name)) found.push_back({number, path(number)});
      return found;
    };
    options.find_model = [this](const std::string& name) -> std::optional<ModelConfig> {
      if (!files_.contains(name)) return std::nullopt;
      ModelConfig config = model(name);
      config.versions = policy_;
      return config;
    };
    return start(std::move(models), options);
  }
  std::string path(std::uint64_t number) const {
    return broken_ ? "broken" : "v" + std::to_string(number);
  }
  std::vector<std::string> versions(const std::string& name) {
    const auto metadata = server_->metadata(name, "");
    return metadata ? metadata->versions : std::vector<std::string>{};
  }
  Code code(const std::string& name, const std::string& version) {
    Request asked = request(name, {1, 2});
    asked.version = version;
    return ask(std::move(asked)).wait().status.code;
  }

  std::string policy_ = "latest:1";
  bool broken_ = false;
};

// Prevents: an answer of 200 to a load that goes on with the old file.
TEST_F(LoadTest, ALoadOfALoadedModelLoadsAgain) {
  files_["a"] = {1};
  start_versions({model("a")});
  const std::size_t loads = stage_.loads;
  EXPECT_TRUE(server_->load("a").ok());
  EXPECT_EQ(stage_.loads, loads + 1);
  EXPECT_EQ(stage_.alive, 1) << "the old one is still there";
}

// Prevents: a gap between an unload and a load, in which requests are refused.
TEST_F(LoadTest, ARequestIsAnsweredAtAnyTimeOfALoad) {
  files_["a"] = {1};
  start_versions({model("a")});
  std::atomic<bool> loading = true;
  std::atomic<int> lost = 0;
  std::atomic<int> answered = 0;
  {
    std::vector<std::jthread> clients;
    for (int i = 0; i < 3; ++i) {
      clients.emplace_back([&] {
        while (loading) {
          ask("a").wait().status.ok() ? ++answered : ++lost;
        }
      });
    }
    // Twenty loads may be over before a client has begun.
    for (int i = 0; i < 20 || answered + lost == 0; ++i) EXPECT_TRUE(server_->load("a").ok());
    loading = false;
  }
  EXPECT_EQ(lost, 0);
  EXPECT_GT(answered, 0);
  EXPECT_EQ(stage_.alive, 1);
}

TEST_F(LoadTest, TheOldOneAnswersWhatItHas) {
  files_["a"] = {1};
  start_versions({model("a")});
  stage_.hold();
  auto running = ask("a");
  stage_.steps(1);
  auto waiting = ask("a");
  auto loaded = std::async(std::launch::async, [this] { return server_->load("a"); });
  stage_.release();
  EXPECT_TRUE(running.wait().status.ok());
  EXPECT_TRUE(waiting.wait().status.ok());
  EXPECT_TRUE(loaded.get().ok());
}

TEST_F(LoadTest, AFailedLoadLeavesTheOldOne) {
  files_["a"] = {1};
  start_versions({model("a")});
  broken_ = true;
  EXPECT_THAT(server_->load("a").message, HasSubstr("no such file"));
  EXPECT_TRUE(ask("a").wait().status.ok());
  EXPECT_TRUE(server_->ready());
  EXPECT_EQ(server_->repository()[0].state, "READY");
}

// Prevents: a balancer sends requests to a server that cannot answer them.
TEST_F(LoadTest, AServerThatLacksAModelIsNotReady) {
  files_["a"] = {1};
  start_versions({model("a")});
  EXPECT_TRUE(server_->unload("a").ok());
  EXPECT_TRUE(server_->ready()) << "that was asked for";
  broken_ = true;
  EXPECT_FALSE(server_->load("a").ok());
  EXPECT_FALSE(server_->ready());
  EXPECT_THAT(server_->metrics(), HasSubstr("sluice_serve_model_ready{model=\"a\"} 0"));
  broken_ = false;
  EXPECT_TRUE(server_->load("a").ok());
  EXPECT_TRUE(server_->ready());
  broken_ = true;
  files_["b"] = {1};
  EXPECT_FALSE(server_->load("b").ok());
  EXPECT_TRUE(server_->ready()) << "nobody has been served it";
}

TEST_F(LoadTest, TheLatestVersionsAreServed) {
  files_["a"] = {1, 2, 10};
  start_versions({model("a")});
  EXPECT_THAT(versions("a"), ElementsAre("10"));
  policy_ = "latest:2";
  EXPECT_TRUE(server_->load("a").ok());
  EXPECT_THAT(versions("a"), ElementsAre("2", "10"));
  EXPECT_EQ(code("a", "2"), Code::kOk);
  EXPECT_EQ(code("a", "10"), Code::kOk);
  EXPECT_EQ(code("a", ""), Code::kOk);
  EXPECT_EQ(code("a", "1"), Code::kNotFound);
  EXPECT_EQ(code("a", "02"), Code::kNotFound);
  files_["a"] = {10, 11};
  EXPECT_TRUE(server_->load("a").ok());
  EXPECT_THAT(versions("a"), ElementsAre("10", "11"));
  EXPECT_EQ(code("a", "2"), Code::kUnavailable);
  EXPECT_EQ(stage_.alive, 2);
  policy_ = "10,12";
  EXPECT_TRUE(server_->load("a").ok());
  EXPECT_THAT(versions("a"), ElementsAre("10"));
  policy_ = "12";
  EXPECT_THAT(server_->load("a").message, HasSubstr("no version"));
  EXPECT_THAT(versions("a"), ElementsAre("10"));
  EXPECT_TRUE(server_->unload("a").ok());
  EXPECT_EQ(stage_.alive, 0);
}

TEST_F(LoadTest, AModelThatIsNotInTheConfigCanBeLoaded) {
  files_["a"] = {1};
  start_versions({model("a")});
  EXPECT_EQ(server_->load("late").code, Code::kNotFound);
  files_["late"] = {3};
  EXPECT_TRUE(server_->load("late").ok());
  EXPECT_EQ(code("late", "3"), Code::kOk);
  EXPECT_EQ(server_->load("../late").code, Code::kNotFound);
}

// Prevents: a counter that goes back to 0, or a series that is gone, when a model is loaded anew.
TEST_F(LoadTest, CountsSurviveLoadsAndUnloads) {
  files_["a"] = {1};
  start_versions({model("a")});
  const auto counted = [this](int requests) {
    return testing::Matches(HasSubstr(
        "sluice_serve_requests_total{model=\"a\",version=\"1\",result=\"ok\",reason=\"\"} " +
        std::to_string(requests) + "\n"))(server_->metrics());
  };
  ask("a").wait();
  EXPECT_TRUE(counted(1));
  EXPECT_TRUE(server_->load("a").ok());
  ask("a").wait();
  EXPECT_TRUE(counted(2));
  EXPECT_TRUE(server_->unload("a").ok());
  EXPECT_TRUE(counted(2));
}

TEST_F(LoadTest, AServerThatLeavesAnswersAndIsNotReady) {
  files_["a"] = {1};
  start_versions({model("a")});
  server_->leave();
  EXPECT_FALSE(server_->ready());
  EXPECT_TRUE(ask("a").wait().status.ok());
  EXPECT_TRUE(server_->drain(base::monotonic_ns() + 10'000'000'000));
  EXPECT_EQ(ask("a").wait().status.code, Code::kUnavailable);
}

}  // namespace
}  // namespace sluice::server
