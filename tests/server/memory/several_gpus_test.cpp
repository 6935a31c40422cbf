// Device memory of a server on two GPUs: what moves, is freed or is missing on one does so on that
// one only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/clock.hpp"
#include "server/requests/server.hpp"
#include "tests/server/asked.hpp"
#include "tests/server/fake_model.hpp"
#include "tests/server/memory/fake_weights.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::server {
namespace {

constexpr std::uint64_t kMiB = 1ULL << 20;

/// A fake model with 60 MiB of weights.
class WeightyModel : public FakeModel {
 public:
  WeightyModel(const ModelConfig& config, Stage& stage, FakeDevice& device)
      : FakeModel(config.name, 1, stage), weights_(device, 60 * kMiB) {}
  engine::Weights* weights() override { return &weights_; }

 private:
  FakeWeights weights_;
};

class MemoryOfSeveralGpus : public testing::Test {
 protected:
  Server& start(const std::vector<ModelConfig>& models) {
    ServerOptions options;
    options.device = "gpu";
    options.memory = [this](int gpu) {
      memory::ResidencyOptions memory;
      memory.broker.pool_bytes = pool_mib_.at(gpu) * kMiB;
      memory.broker.max_idle_ns = 0;
      return memory;
    };
    server_ = std::make_unique<Server>(
        options, models,
        [this](const ModelConfig& config) -> std::unique_ptr<engine::ServedModel> {
          const int gpu = gpus_of(config).front();
          if (gpu == broken_on_) throw base::RunError("no such GPU");
          return std::make_unique<WeightyModel>(config, stages_[gpu], devices_[gpu]);
        },
        Server::Events{[] {}, [](const std::string&) {}, [](const std::string&) {}});
    server_->preload();
    return *server_;
  }
  static ModelConfig on(const std::string& name, std::vector<int> gpus) {
    ModelConfig config = model(name);
    config.gpus = std::move(gpus);
    return config;
  }
  Asked ask(const std::string& name) {
    Request request;
    request.model = name;
    request.headers_ns = base::monotonic_ns();
    set_input(request, {1, 2});
    Asked asked;
    asked.cancellation = server_->infer(std::move(request), asked.done());
    return asked;
  }
  [[nodiscard]] double resident_mb(std::size_t device) {
    const nlohmann::json status = server_->status();
    return status["devices"].at(device)["memory"]["resident_mb"];
  }
  [[nodiscard]] std::int64_t taken_mib(int gpu) {
    return ((std::int64_t{1} << 30) - devices_[gpu].free) / static_cast<std::int64_t>(kMiB);
  }

  std::map<int, std::uint64_t> pool_mib_{{0, 100}, {1, 100}};
  std::map<int, Stage> stages_;
  std::map<int, FakeDevice> devices_;
  int broken_on_ = 99;
  std::unique_ptr<Server> server_;
};

// Prevents: models of one GPU that leave because those of another need its memory.
TEST_F(MemoryOfSeveralGpus, EachGpuHasAPoolOfItsOwn) {
  start({on("a", {0}), on("b", {1}), on("c", {0})});
  ASSERT_TRUE(test::eventually([&] { return taken_mib(0) == 60; })) << "one of two fits";
  for (const char* name : {"a", "c", "a"}) EXPECT_TRUE(ask(name).wait().status.ok());
  EXPECT_EQ(taken_mib(1), 60);
  EXPECT_EQ(resident_mb(0), 60);
  EXPECT_EQ(resident_mb(1), 60);
}

// Prevents: a refusal because one GPU is full, although another one has the model.
TEST_F(MemoryOfSeveralGpus, ARequestGoesWhereItsModelHasMemory) {
  pool_mib_[0] = 10;
  start({on("a", {0, 1})});
  ASSERT_TRUE(test::eventually([&] { return taken_mib(0) == 0; })) << "it never fits";
  stages_[1].hold();
  stages_[1].forget_steps();
  std::vector<Asked> all;
  for (int i = 0; i < 4; ++i) all.push_back(ask("a"));
  stages_[1].steps(1);
  stages_[1].release();
  for (Asked& each : all) {
    const Answer answer = each.wait();
    EXPECT_TRUE(answer.status.ok()) << answer.status.message;
    EXPECT_EQ(answer.count, 1);
  }
  EXPECT_EQ(stages_[1].steps(4).size(), 4U);
}

// Prevents: weights that a GPU goes on to count, and to move, after the load has failed on another.
TEST_F(MemoryOfSeveralGpus, ALoadThatFailsOnOneGpuLeavesNothingOnTheOther) {
  ModelConfig a = on("a", {0, 1});
  a.preload = false;
  start({a});
  broken_on_ = 1;
  EXPECT_FALSE(server_->load("a").ok());
  EXPECT_EQ(taken_mib(0), 0);
  EXPECT_EQ(resident_mb(0), 0);
  broken_on_ = 99;
  EXPECT_TRUE(server_->load("a").ok());
  EXPECT_TRUE(ask("a").wait().status.ok());
}

TEST_F(MemoryOfSeveralGpus, AnUnloadAndASwapFreeTheMemoryOfEachGpu) {
  pool_mib_ = {{0, 1000}, {1, 1000}};
  start({on("a", {0, 1}), on("b", {1})});
  EXPECT_TRUE(server_->load("a").ok());
  EXPECT_EQ(taken_mib(0), 60);
  EXPECT_EQ(resident_mb(0), 60);
  EXPECT_TRUE(server_->unload("a").ok());
  EXPECT_EQ(taken_mib(0), 0);
  EXPECT_EQ(resident_mb(0), 0);
  EXPECT_TRUE(ask("b").wait().status.ok());
  EXPECT_EQ(taken_mib(1), 60);
  EXPECT_EQ(resident_mb(1), 60);
}

}  // namespace
}  // namespace sluice::server
