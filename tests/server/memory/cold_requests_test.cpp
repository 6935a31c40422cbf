// Requests for models whose weights are not on the device: each is answered once, in order, and
// never by a model without weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>

#include "base/clock.hpp"
#include "server/requests/server.hpp"
#include "tests/server/fake_model.hpp"
#include "tests/server/memory/fake_weights.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/temp_folder.hpp"

namespace {
std::atomic<int> g_open_jobs{0};
}  // namespace

// sluice.h looks the functions up among the symbols of the whole process.
extern "C" {
__attribute__((visibility("default"))) std::uint64_t sluice_v1_job_begin_on(int, std::uint64_t) {
  ++g_open_jobs;
  return 1;
}
__attribute__((visibility("default"))) void sluice_v1_job_end(std::uint64_t job) {
  if (job != 0) --g_open_jobs;
}
}

namespace sluice::server {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

constexpr std::uint64_t kMiB = 1ULL << 20;

/// A fake model with weights, whose use without them is a fault.
class ColdModel : public FakeModel {
 public:
  ColdModel(const ModelConfig& config, Stage& stage, FakeDevice& device)
      : FakeModel(config.name, std::max<std::size_t>(1, config.blocks), stage),
        weights_(device, config.weights_mb * kMiB, std::max<std::size_t>(1, config.blocks)) {}

  engine::Weights* weights() override { return &weights_; }
  FakeWeights& fake() { return weights_; }
  std::unique_ptr<engine::Batch> begin(
      std::span<const std::vector<engine::Tensor>> requests) override {
    weights_.run();
    return FakeModel::begin(requests);
  }

 private:
  FakeWeights weights_;
};

class ColdRequests : public testing::Test {
 protected:
  ~ColdRequests() override {
    for (const auto& [name, model] : models_) EXPECT_EQ(model->fake().faults, 0) << name;
    server_.reset();
    EXPECT_EQ(lost_, stage_.lose_context ? "the device is gone" : "");
  }
  /// Models a and b, of which one fits, and c without weights.
  Server& start(std::size_t batch_size = 1, std::size_t blocks = 1) {
    std::vector<ModelConfig> configs(3);
    for (std::size_t i = 0; i < 3; ++i) {
      configs[i].name = std::string(1, static_cast<char>('a' + i));
      configs[i].weights_mb = i < 2 ? 60 : 0;
      configs[i].batch_size = batch_size;
      configs[i].blocks = blocks;
      configs[i].gpus = {0};
    }
    ServerOptions options;
    options.records_file = records_;
    options.memory = [this](int) {
      memory::ResidencyOptions memory;
      memory.broker.pool_bytes = 100 * kMiB;
      memory.broker.max_idle_ns = 0;
      memory.broker.give_up_ns = give_up_ns_;
      return memory;
    };
    server_ = std::make_unique<Server>(
        options, configs,
        [this](const ModelConfig& config) -> std::unique_ptr<engine::ServedModel> {
          if (config.weights_mb == 0) {
            return std::make_unique<FakeModel>(config.name, 1, stage_);
          }
          auto made = std::make_unique<ColdModel>(config, stage_, device_);
          models_[config.name] = made.get();
          return made;
        },
        Server::Events{[] {}, [this](const std::string& why) { lost_ = why; },
                       [](const std::string&) {}});
    server_->preload();
    // Both have been loaded. The memory thread evicts one of them.
    EXPECT_TRUE(test::eventually([&] { return weights("a").loaded() != weights("b").loaded(); }));
    stage_.forget_steps();
    return *server_;
  }
  FakeWeights& weights(const std::string& model) { return models_.at(model)->fake(); }

  struct Asked {
    std::future<Status> answer;
    std::shared_ptr<Cancellation> cancellation;
    Code code() {
      if (answer.wait_for(std::chrono::seconds(10)) != std::future_status::ready) {
        ADD_FAILURE() << "no answer";
        return Code::kInternal;
      }
      const Status status = answer.get();
      message = status.message;
      return status.code;
    }
    std::string message;
  };
  Asked ask(const std::string& model, std::uint64_t timeout_ms = 0) {
    Request request;
    request.model = model;
    request.headers_ns = base::monotonic_ns();
    if (timeout_ms > 0) request.deadline_ns = request.headers_ns + timeout_ms * 1'000'000;
    auto data = std::make_shared<std::vector<float>>(2);
    request.inputs.push_back(
        {"input0", engine::DataType::kFp32, {1, 2}, std::as_bytes(std::span(*data))});
    request.storage = data;
    auto promise = std::make_shared<std::promise<Status>>();
    Asked asked;
    asked.answer = promise->get_future();
    asked.cancellation = server_->infer(
        std::move(request),
        [promise](const Status& status, const Response&) { promise->set_value(status); });
    return asked;
  }
  /// A model is cold and its weights do not come until release().
  void make_cold(const std::string& model) {
    const std::string other = model == "a" ? "b" : "a";
    EXPECT_EQ(ask(other).code(), Code::kOk);
    stage_.forget_steps();
    // The memory thread makes the pool fit after the models were loaded.
    EXPECT_TRUE(test::eventually([&] { return !weights(model).loaded(); }));
    weights(model).copied = 0;
  }
  [[nodiscard]] std::uint64_t waiting(const std::string& model) {
    const nlohmann::json status = server_->status();
    for (const auto& row : status["models"]) {
      if (row["name"] == model) return row["waiting"];
    }
    return ~0ULL;
  }
  std::vector<nlohmann::json> records() {
    std::ifstream in(records_);
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }

  test::TempFolder folder_;
  std::string records_ = folder_.file("records.jsonl");
  std::uint64_t give_up_ns_ = 10'000'000'000;
  std::string lost_;
  Stage stage_;
  FakeDevice device_;
  std::map<std::string, ColdModel*> models_;
  std::unique_ptr<Server> server_;
};

// Prevents: a cold request that closes the gate to the training whose memory it waits for.
TEST_F(ColdRequests, TheGateIsOpenWhileOnlyColdRequestsWait) {
  start();
  make_cold("a");
  Asked cold = ask("a");
  Asked warm = ask("c");
  EXPECT_EQ(warm.code(), Code::kOk);
  const std::uint64_t end = base::monotonic_ns() + 5'000'000'000;
  while (g_open_jobs != 0 && base::monotonic_ns() < end) {
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(g_open_jobs, 0);
  EXPECT_EQ(waiting("a"), 1U);
  weights("a").copied = 64;
  EXPECT_EQ(cold.code(), Code::kOk);
}

TEST_F(ColdRequests, TakeTurnsOnTheDevice) {
  start();
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(ask(i % 2 == 0 ? "a" : "b").code(), Code::kOk);
    EXPECT_NE(weights("a").loaded(), weights("b").loaded());
  }
  EXPECT_GE(weights("a").evictions, 4);
  const auto all = records();
  ASSERT_THAT(all, SizeIs(10));
  EXPECT_GT(all.back()["cold_ms"], 0);
  EXPECT_EQ(ask("b").code(), Code::kOk);
  EXPECT_EQ(records().back()["cold_ms"], 0);
}

TEST_F(ColdRequests, LeaveTheDeviceToWarmModelsMeanwhile) {
  start();
  make_cold("b");
  Asked cold = ask("b");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(ask("c").code(), Code::kOk);
  EXPECT_THAT(stage_.steps(0), SizeIs(3));
  EXPECT_EQ(waiting("b"), 1U);
  weights("b").copied = 1;
  EXPECT_EQ(cold.code(), Code::kOk);
  EXPECT_EQ(waiting("b"), 0U);
}

TEST_F(ColdRequests, RunInOrderAndAsOneBatch) {
  start(2);
  make_cold("b");
  std::vector<Asked> asked;
  for (int i = 0; i < 3; ++i) asked.push_back(ask("b"));
  // Returns when the dispatcher has taken the requests.
  ASSERT_TRUE(server_->set_scheduler(server_->scheduler()).ok());
  weights("b").copied = 1;
  for (Asked& each : asked) EXPECT_EQ(each.code(), Code::kOk);
  EXPECT_THAT(stage_.steps(2), ElementsAre("b[2] 0+1", "b[1] 0+1"));
}

TEST_F(ColdRequests, KeepTheirDeadline) {
  start();
  make_cold("b");
  Asked late = ask("b", 20);
  Asked patient = ask("b");
  EXPECT_EQ(late.code(), Code::kDeadlineExceeded);
  EXPECT_EQ(waiting("b"), 1U);
  weights("b").copied = 1;
  EXPECT_EQ(patient.code(), Code::kOk);
}

TEST_F(ColdRequests, CanBeCancelled) {
  start();
  make_cold("b");
  Asked asked = ask("b");
  asked.cancellation->cancel();
  EXPECT_EQ(asked.code(), Code::kCancelled);
  // Nothing is left behind that keeps b, or a, from being used.
  weights("b").copied = 1;
  EXPECT_EQ(ask("a").code(), Code::kOk);
  EXPECT_EQ(ask("b").code(), Code::kOk);
}

TEST_F(ColdRequests, HearWhyTheWeightsDoNotCome) {
  start();
  make_cold("b");
  weights("b").fail = true;
  Asked asked = ask("b");
  EXPECT_EQ(asked.code(), Code::kResourceExhausted);
  EXPECT_THAT(asked.message, HasSubstr("model 'b': the file is gone"));
  weights("b").fail = false;
  weights("b").copied = 1;
  EXPECT_EQ(ask("b").code(), Code::kOk);
}

TEST_F(ColdRequests, DoNotWaitForMemoryForEver) {
  give_up_ns_ = 2'000'000'000;
  start();
  make_cold("b");
  // a is in use all the time.
  stage_.hold();
  Asked running = ask("a");
  EXPECT_THAT(stage_.steps(1), SizeIs(1));
  Asked asked = ask("b");
  EXPECT_EQ(asked.code(), Code::kResourceExhausted);
  EXPECT_THAT(asked.message, HasSubstr("no memory"));
  stage_.release();
  EXPECT_EQ(running.code(), Code::kOk);
}

TEST_F(ColdRequests, AreAnsweredWhenTheirModelIsUnloaded) {
  start();
  make_cold("b");
  Asked asked = ask("b");
  EXPECT_TRUE(server_->unload("b").ok());
  models_.erase("b");
  EXPECT_EQ(asked.code(), Code::kUnavailable);
  EXPECT_EQ(ask("a").code(), Code::kOk);
}

TEST_F(ColdRequests, AreAnsweredWhenTheServerEnds) {
  start();
  make_cold("b");
  Asked asked = ask("b");
  std::this_thread::sleep_for(milliseconds(5));
  models_.clear();
  server_.reset();
  EXPECT_EQ(asked.code(), Code::kUnavailable);
}

// Prevents: the server ends without an answer to requests that no step will ever reach.
TEST_F(ColdRequests, AreAnsweredWhenTheDeviceIsLost) {
  start();
  make_cold("b");
  Asked cold = ask("b");
  stage_.lose_context = true;
  EXPECT_EQ(ask("c").code(), Code::kInternal);
  EXPECT_EQ(cold.code(), Code::kInternal);
  EXPECT_THAT(cold.message, HasSubstr("the device is gone"));
  EXPECT_EQ(ask("c").code(), Code::kUnavailable);
}

// Prevents: a server that stays on a device that was lost while weights moved.
TEST_F(ColdRequests, AreAnsweredWhenTheDeviceIsLostDuringTheirLoad) {
  start();
  make_cold("b");
  stage_.lose_context = true;
  weights("b").lost = true;
  EXPECT_NE(ask("b").code(), Code::kOk);
}

TEST_F(ColdRequests, AModelInTheMiddleOfABatchStays) {
  start(1, 2);
  EXPECT_TRUE(server_->set_scheduler("OYST").ok());
  EXPECT_EQ(ask("a").code(), Code::kOk);
  stage_.forget_steps();
  stage_.hold();
  Asked running = ask("a");
  EXPECT_THAT(stage_.steps(1), SizeIs(1));
  Asked cold = ask("b");
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_TRUE(weights("a").loaded());
  EXPECT_FALSE(weights("b").loaded());
  stage_.release();
  EXPECT_EQ(running.code(), Code::kOk);
  EXPECT_EQ(cold.code(), Code::kOk);
}

TEST_F(ColdRequests, AFullDeviceMakesRoomForTheLoadOfAnotherModel) {
  start();
  EXPECT_TRUE(server_->unload("b").ok());
  EXPECT_TRUE(weights("a").loaded() || ask("a").code() == Code::kOk);
  device_.free = 10 * kMiB;
  EXPECT_TRUE(server_->load("b").ok());
  EXPECT_EQ(ask("b").code(), Code::kOk);
  EXPECT_EQ(ask("a").code(), Code::kOk);
}

}  // namespace
}  // namespace sluice::server
