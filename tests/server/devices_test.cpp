// A server with several devices: one that is blocked or full costs the others nothing, and each
// request goes to the one that is done first.
#include <fmt/format.h>

#include <fstream>
#include <future>
#include <map>

#include "tests/server/server_test.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::UnorderedElementsAre;

constexpr std::uint64_t kMs = 1'000'000;

/// Whole servers, whose models have a stage on each device.
class SeveralDevices : public testing::Test {
 protected:
  Server& start(std::vector<ModelConfig> models, ServerOptions options = {}) {
    options.device = "gpu";
    options.records_file = records_;
    server_ = std::make_unique<Server>(
        options, std::move(models),
        [this](const ModelConfig& config) -> std::unique_ptr<engine::ServedModel> {
          const int gpu = gpus_of(config).front();
          if (gpu == broken_on_) throw base::RunError("no such GPU");
          return std::make_unique<FakeModel>(config.name, 1, stages_[gpu]);
        },
        Server::Events{[] {}, [this](const std::string& why) { lost_ = why; },
                       [this](const std::string& line) { log_ += line + "\n"; }});
    server_->preload();
    for (auto& [gpu, stage] : stages_) stage.forget_steps();
    return *server_;
  }
  static ModelConfig on(const std::string& name, std::vector<int> gpus) {
    ModelConfig config = model(name);
    config.gpus = std::move(gpus);
    return config;
  }
  Asked ask(const std::string& name, std::uint64_t announced = 0) {
    Request request;
    request.model = name;
    request.headers_ns = base::monotonic_ns();
    request.announced = announced;
    set_input(request, {1, 2});
    Asked asked;
    asked.cancellation = server_->infer(std::move(request), asked.done());
    return asked;
  }
  [[nodiscard]] nlohmann::json rows(const std::string& of) const { return server_->status()[of]; }

  test::TempFolder folder_;
  std::string records_ = folder_.file("records.jsonl");
  std::map<int, Stage> stages_;
  int broken_on_ = 99;
  std::string lost_;
  std::string log_;
  std::unique_ptr<Server> server_;
};

// Prevents: one queue for all devices.
TEST_F(SeveralDevices, ABlockedDeviceDoesNotHoldUpTheOther) {
  start({on("a", {0}), on("b", {1})});
  stages_[0].hold();
  auto blocked = ask("a");
  stages_[0].steps(1);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ask("b").wait().status.ok());
  EXPECT_FALSE(blocked.answered());
  stages_[0].release();
  EXPECT_TRUE(blocked.wait().status.ok());
}

// Prevents: gates of an idle device that close for a request that has gone to another one.
TEST_F(SeveralDevices, ARequestThatGoesElsewhereIsNotAnnouncedAnyMore) {
  stages_[1].step_time = std::chrono::milliseconds(200);  // so the first is better if both are idle
  start({on("a", {0, 1}), on("b", {0})});
  const auto pause = [](int ms = 20) {
    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  };
  std::uint64_t id = 0;
  for (int i = 0; i < 2; ++i) {  // which teaches the notice
    if (id != 0) ask("a", id).wait();
    pause();  // the busy period ends just after the answer
    id = server_->headers("a", 8);
    pause();
  }
  stages_[0].hold();
  auto busy = ask("b");
  pause(400);  // the longer it takes, the later it will be done
  EXPECT_TRUE(ask("a", id).wait().status.ok());
  stages_[0].release();
  EXPECT_TRUE(busy.wait().status.ok());
  std::map<int, std::vector<double>> notices;
  std::ifstream in(records_);
  for (std::string line; std::getline(in, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record["model_name"] == "a") notices[record["gpu"]].push_back(record["announced_us"]);
  }
  EXPECT_THAT(notices[0], ElementsAre(0.0));  // it was the first of its kind
  EXPECT_THAT(notices[1], ElementsAre(0.0));
}

// Prevents: a model on two devices that uses one.
TEST_F(SeveralDevices, AModelRunsOnAllOfItsDevicesAtOnce) {
  start({on("a", {0, 1, 2})});
  for (auto& [gpu, stage] : stages_) stage.hold();
  std::vector<Asked> all;
  for (int i = 0; i < 3; ++i) all.push_back(ask("a"));
  for (int gpu : {0, 1, 2}) EXPECT_THAT(stages_[gpu].steps(1), SizeIs(1)) << gpu;
  for (auto& [gpu, stage] : stages_) stage.release();
  for (Asked& each : all) EXPECT_TRUE(each.wait().status.ok());
}

TEST_F(SeveralDevices, MaxQueueCountsTheRequestsOfAllDevices) {
  ModelConfig a = on("a", {0, 1});
  a.max_queue = 2;
  // So long that the requests that wait are with both.
  for (int gpu : {0, 1}) stages_[gpu].step_time = std::chrono::milliseconds(50);
  start({a});
  for (auto& [gpu, stage] : stages_) stage.hold();
  std::vector<Asked> all;
  for (int i = 0; i < 2; ++i) {
    all.push_back(ask("a"));
    // It runs, and waits no more.
    ASSERT_TRUE(test::eventually(
        [&] { return stages_[0].steps(0).size() + stages_[1].steps(0).size() == all.size(); }));
  }
  for (int i = 0; i < 2; ++i) all.push_back(ask("a"));
  EXPECT_EQ(ask("a").wait().status.reason, "queue");
  for (auto& [gpu, stage] : stages_) stage.release();
  for (Asked& each : all) EXPECT_TRUE(each.wait().status.ok());
}

// Prevents: a model that is loaded on some of its devices only, and the memory of such a load.
TEST_F(SeveralDevices, ALoadHoldsForAllDevicesOrForNone) {
  ModelConfig a = on("a", {0, 1});
  a.preload = false;
  start({a});
  broken_on_ = 1;
  EXPECT_THAT(server_->load("a").message, HasSubstr("no such GPU"));
  EXPECT_FALSE(server_->model_ready("a", ""));
  EXPECT_EQ(stages_[0].alive, 0);
  broken_on_ = 99;
  EXPECT_TRUE(server_->load("a").ok());
  EXPECT_EQ(stages_[0].alive, 1);
  EXPECT_EQ(stages_[1].alive, 1);
  // Next to a version that is served, which stays.
  broken_on_ = 1;
  EXPECT_FALSE(server_->load("a").ok());
  EXPECT_TRUE(server_->model_ready("a", ""));
  EXPECT_EQ(stages_[0].alive, 1);
  EXPECT_TRUE(ask("a").wait().status.ok());
}

// Prevents: an unload that leaves the model on a device, or takes it from under a batch there.
TEST_F(SeveralDevices, AnUnloadFreesTheModelOnEachDeviceAfterItsBatches) {
  start({on("a", {0, 1}), on("b", {1})});
  for (auto& [gpu, stage] : stages_) stage.hold();
  std::vector<Asked> running;
  for (int i = 0; i < 2; ++i) running.push_back(ask("a"));
  for (int gpu : {0, 1}) stages_[gpu].steps(1);
  auto waiting = ask("a");
  auto unloaded = std::async(std::launch::async, [this] { return server_->unload("a"); });
  stages_[0].release();
  EXPECT_TRUE(test::eventually([&] { return running[0].answered() != running[1].answered(); }));
  EXPECT_EQ(unloaded.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  stages_[1].release();
  EXPECT_TRUE(unloaded.get().ok());
  for (Asked& each : running) EXPECT_TRUE(each.wait().status.ok());
  waiting.wait();
  EXPECT_TRUE(test::eventually([&] { return stages_[0].alive == 0 && stages_[1].alive == 1; }));
  EXPECT_TRUE(ask("b").wait().status.ok());
  EXPECT_EQ(ask("a").wait().status.code, Code::kUnavailable);
}

// Prevents: an update that answers from the old model on one device and from the new one on
// another, or that loses what the old one has accepted.
TEST_F(SeveralDevices, ASwapRetiresTheOldModelOnEachDevice) {
  start({on("a", {0, 1})});
  for (auto& [gpu, stage] : stages_) stage.hold();
  std::vector<Asked> accepted;
  for (int i = 0; i < 4; ++i) accepted.push_back(ask("a"));
  for (int gpu : {0, 1}) stages_[gpu].steps(1);
  for (auto& [gpu, stage] : stages_) stage.release();
  EXPECT_TRUE(server_->load("a").ok());
  for (Asked& each : accepted) EXPECT_TRUE(each.wait().status.ok());
  EXPECT_EQ(stages_[0].alive, 1);
  EXPECT_EQ(stages_[1].alive, 1);
  EXPECT_EQ(stages_[0].loads, 2U);
  EXPECT_TRUE(ask("a").wait().status.ok());
}

// Prevents: a device that comes with a later load goes by the scheduler of the start, or is not
// there.
TEST_F(SeveralDevices, ALaterLoadMayUseAnotherDevice) {
  ServerOptions options;
  options.find_model = [](const std::string& name) { return std::optional(on(name, {3})); };
  start({on("a", {0})}, options);
  EXPECT_TRUE(server_->set_scheduler("FIFO").ok());
  EXPECT_TRUE(server_->load("late").ok());
  EXPECT_TRUE(ask("late").wait().status.ok());
  EXPECT_THAT(stages_[3].steps(0), testing::Contains("late[1] 0+1"));
  EXPECT_EQ(server_->scheduler(), "FIFO");
  EXPECT_EQ(rows("devices").size(), 2U);
}

// Prevents: a server that ends after a client has asked for a GPU that does not exist.
TEST_F(SeveralDevices, ALaterLoadOnAGpuThatDoesNotExistFails) {
  ServerOptions options;
  options.find_model = [](const std::string& name) {
    return std::optional(on(name, {name == "late" ? 7 : 0}));
  };
  options.memory = [](int gpu) -> std::optional<memory::ResidencyOptions> {
    if (gpu == 7) throw base::RunError("no GPU 7");
    return std::nullopt;
  };
  start({on("a", {0})}, options);
  for (int i = 0; i < 2; ++i) EXPECT_THAT(server_->load("late").message, HasSubstr("no GPU 7"));
  EXPECT_EQ(rows("devices").size(), 1U);
  EXPECT_THAT(server_->metrics(), HasSubstr("busy_seconds"));
  EXPECT_TRUE(ask("a").wait().status.ok());
}

// Prevents: requests on the other devices without an answer when the process is about to end.
TEST_F(SeveralDevices, ALostDeviceEndsTheWholeServer) {
  start({on("a", {0}), on("b", {1})});
  stages_[1].hold();
  auto running = ask("b");
  stages_[1].steps(1);
  auto waiting = ask("b");
  stages_[0].lose_context = true;
  EXPECT_EQ(ask("a").wait().status.code, Code::kInternal);
  EXPECT_EQ(lost_, "the device is gone");
  EXPECT_EQ(waiting.wait().status.code, Code::kInternal);
  EXPECT_FALSE(server_->ready());
  stages_[1].release();
  running.wait();
}

TEST_F(SeveralDevices, ADrainWaitsForEachDevice) {
  start({on("a", {0}), on("b", {1})});
  stages_[1].hold();
  auto running = ask("b");
  stages_[1].steps(1);
  EXPECT_FALSE(server_->drain(base::monotonic_ns() + 20 * kMs));
  stages_[1].release();
  EXPECT_TRUE(server_->drain(base::monotonic_ns() + 10'000 * kMs));
  EXPECT_TRUE(running.wait().status.ok());
}

// Prevents: a log of loads whose times are not those that admission uses.
TEST_F(SeveralDevices, ALoadIsLoggedWithTheTimeThatWasMeasured) {
  stages_[0].step_time = std::chrono::milliseconds(1);
  start({on("a", {0})});
  const double limit_ms = rows("models")[0]["limit_ms"];
  EXPECT_EQ(log_, fmt::format("a on cuda:0: fake, 1 block, {:.3f} ms\n", limit_ms));
}

// Prevents: a view in which the devices cannot be told apart.
TEST_F(SeveralDevices, StatusMetricsRecordsAndLogNameTheDevice) {
  start({on("a", {0, 1}), on("c", {})});
  for (auto& [gpu, stage] : stages_) stage.hold();
  std::vector<Asked> all;
  for (const char* name : {"a", "a", "c"}) all.push_back(ask(name));
  for (auto& [gpu, stage] : stages_) stage.steps(1);
  for (auto& [gpu, stage] : stages_) stage.release();
  for (Asked& each : all) EXPECT_TRUE(each.wait().status.ok());
  std::vector<std::string> devices;
  for (const auto& row : rows("models")) devices.push_back(row["device"]);
  EXPECT_THAT(devices, ElementsAre("cuda:0", "cuda:1", "cpu"));
  EXPECT_THAT(log_, HasSubstr("a on cuda:1: fake"));
  EXPECT_THAT(server_->metrics(),
              HasSubstr(R"(sluice_serve_busy_seconds_total{device="cuda:1"} )"));
  std::vector<nlohmann::json> gpus;
  std::ifstream in(records_);
  for (std::string line; std::getline(in, line);)
    gpus.push_back(nlohmann::json::parse(line)["gpu"]);
  EXPECT_THAT(gpus, UnorderedElementsAre(0, 1, nullptr));
}

}  // namespace
}  // namespace sluice::server
