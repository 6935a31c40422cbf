// A server with several devices: one that is blocked or full costs the others nothing, and each
// request goes to the one that is done first.
#include <array>
#include <atomic>
#include <fstream>
#include <future>
#include <map>
#include <thread>

#include "server/requests/device.hpp"
#include "tests/server/asked.hpp"
#include "tests/server/fake_model.hpp"
#include "tests/server/server_test.hpp"
#include "tests/server/virtual_host.hpp"
#include "tests/support/eventually.hpp"

namespace sluice::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;
using testing::UnorderedElementsAre;

constexpr std::uint64_t kMs = 1'000'000;

/// Two devices in virtual time. Each block of a model takes 10 ms.
class TwoDispatchers : public testing::Test {
 protected:
  TwoDispatchers() {
    for (const std::size_t i : {0U, 1U}) {
      const int gpu = static_cast<int>(i);
      auto host = std::make_unique<VirtualHost>();
      hosts_[i] = host.get();
      host->takes = [](const Execution&, const scheduler::Step& step) {
        return 10 * kMs * step.blocks;
      };
      Device& device = devices_[i];
      device.gpu = gpu;
      device.dispatcher = std::make_unique<Dispatcher>(
          DispatcherOptions{}, announcer_, memory_,
          [this](const Execution& execution, Pending& pending, const Status& status,
                 const Response& response) {
            if (status.ok()) answered_on_[pending.id] = execution.model->gpu();
            pending.done(status, response);
            if (on_answer_) on_answer_();
          },
          [](const std::string&) {}, Dispatcher::Sharing{gpu, nullptr, nullptr, hand_on},
          std::move(host));
    }
  }
  ~TwoDispatchers() override {
    for (Device& device : devices_) device.dispatcher->stop();
  }

  std::shared_ptr<Model> add(const std::string& name, int gpu, std::size_t blocks = 1,
                             std::size_t batch_size = 1) {
    ModelConfig config = model(name, batch_size, blocks);
    config.gpus = {gpu};
    auto made = std::make_shared<Model>(config);
    made->instances.push_back(std::make_unique<Model::Instance>());
    made->instances.back()->served =
        std::make_unique<FakeModel>(name + std::to_string(gpu), blocks, stage_);
    for (const std::size_t items : {std::size_t{1}, batch_size}) {
      made->timing.measured(items, std::vector<std::uint64_t>(blocks, 10 * kMs));
      made->limits.measured(items, made->timing.whole_ns(items));
    }
    made->id = next_model_++;
    made->device = &devices_.at(static_cast<std::size_t>(gpu));
    made->device->dispatcher->add_model(made);
    return made;
  }
  /// Of the first replica, whatever the others have to do.
  Asked ask(const Replicas& replicas, std::int64_t deadline_ms = 0) {
    Asked asked;
    const auto& first = replicas.front();
    Pending pending;
    pending.id = next_request_++;
    pending.items = 1;
    pending.times.arrived_ns = hosts_.at(0)->now_ns();
    if (deadline_ms > 0) pending.deadline_ns = hosts_.at(0)->now_ns() + deadline_ms * kMs;
    set_input(pending.request, {1, 2});
    pending.done = asked.done();
    pending.elsewhere.assign(replicas.begin() + 1, replicas.end());
    first->waiting.fetch_add(1);
    first->device->dispatcher->submit(first, std::move(pending));
    return asked;
  }
  void advance_ms(std::uint64_t ms) {
    for (VirtualHost* const host : hosts_) host->advance(ms * kMs);
  }
  [[nodiscard]] std::uint64_t ahead_ms(int gpu) {
    return devices_.at(static_cast<std::size_t>(gpu)).dispatcher->ahead_ns() / kMs;
  }

  Stage stage_;
  std::map<std::uint64_t, int> answered_on_;
  std::function<void()> on_answer_;

 private:
  Announcer announcer_{false};
  const ByteBudget memory_{1U << 20U};
  std::uint32_t next_model_ = 1;
  std::uint64_t next_request_ = 1;

 protected:
  std::array<VirtualHost*, 2> hosts_{};
  std::array<Device, 2> devices_;
};

// Prevents: requests that go to a device with much to do, because what runs there, waits there, or
// has been done is not counted, or is counted for ever.
TEST_F(TwoDispatchers, ADeviceKnowsHowLongItsWorkWillTake) {
  const auto a = add("a", 0, 2, 2);
  EXPECT_EQ(ahead_ms(0), 0U);
  auto first = ask({a});
  EXPECT_EQ(ahead_ms(0), 20U);
  auto second = ask({a});
  EXPECT_EQ(ahead_ms(0), 40U);
  auto third = ask({a});  // joins the batch of the second
  EXPECT_EQ(ahead_ms(0), 40U);
  EXPECT_EQ(ahead_ms(1), 0U);
  advance_ms(15);
  EXPECT_EQ(ahead_ms(0), 25U);
  advance_ms(10);
  EXPECT_EQ(ahead_ms(0), 15U);
  auto fourth = ask({a});
  EXPECT_EQ(ahead_ms(0), 35U);
  advance_ms(15);
  EXPECT_EQ(ahead_ms(0), 20U);
  advance_ms(50);
  EXPECT_TRUE(fourth.now().status.ok());
  EXPECT_EQ(ahead_ms(0), 0U);
}

// Prevents: the work of a request that has left stays on the bill of its device.
TEST_F(TwoDispatchers, WhatIsCalledOffIsNotAhead) {
  const auto a = add("a", 0);
  auto running = ask({a});
  auto waiting = ask({a});
  EXPECT_EQ(ahead_ms(0), 20U);
  devices_[0].dispatcher->cancel(2);
  EXPECT_EQ(waiting.now().status.code, Code::kCancelled);
  EXPECT_EQ(ahead_ms(0), 10U);
}

// Prevents: a burst that goes to one device, because its thread has not read the first requests
// yet.
TEST_F(TwoDispatchers, WhatNobodyHasReadYetIsAhead) {
  const auto a = add("a", 0);
  std::optional<Asked> second;
  on_answer_ = [&] {
    second = ask({a});  // in a round, so nobody reads it before the end of the round
    EXPECT_EQ(ahead_ms(0), 10U);
  };
  auto first = ask({a});
  advance_ms(10);
  ASSERT_TRUE(second);
  EXPECT_EQ(ahead_ms(0), 10U);
  on_answer_ = nullptr;
  advance_ms(10);
  EXPECT_EQ(ahead_ms(0), 0U);
}

TEST_F(TwoDispatchers, TheEarliestIsTheOneThatIsDoneFirst) {
  Replicas a{add("a", 0), add("a", 1)};
  EXPECT_EQ(earliest(a, 1), a.begin()) << "of equal ones the first";
  auto one = ask(a);
  EXPECT_EQ(earliest(a, 1), a.begin() + 1);
  const auto long_one = add("long", 1, 4);
  auto other = ask({long_one});
  EXPECT_EQ(earliest(a, 1), a.begin());
}

// Prevents: a request that is refused although another device would have been in time: device 0 has
// less to do, but all of it more urgent.
TEST_F(TwoDispatchers, ARequestThatWouldBeLateGoesToTheOtherDevice) {
  const Replicas a{add("a", 0), add("a", 1)};
  const auto urgent = add("urgent", 0);
  const auto lax = add("lax", 1);
  std::vector<Asked> others;
  for (int i = 0; i < 3; ++i) others.push_back(ask({urgent}, 31));
  for (int i = 0; i < 4; ++i) others.push_back(ask({lax}));
  auto asked = ask(a, 35);
  EXPECT_EQ(a[0]->waiting, 0U);
  EXPECT_EQ(a[1]->waiting, 1U);
  advance_ms(100);
  EXPECT_TRUE(asked.now().status.ok()) << asked.now().status.message;
  EXPECT_EQ(asked.now().count, 1);
  EXPECT_EQ(answered_on_.at(8), 1);
  for (Asked& other : others) EXPECT_TRUE(other.now().status.ok());
}

// Prevents: a request that goes around for ever, or has no answer or two.
TEST_F(TwoDispatchers, ARequestThatIsLateEverywhereIsRefusedOnce) {
  const Replicas a{add("a", 0), add("a", 1)};
  std::vector<Asked> others;
  for (int i = 0; i < 6; ++i) others.push_back(ask({a[static_cast<std::size_t>(i % 2)]}));
  auto asked = ask(a, 5);
  EXPECT_EQ(asked.now().status.code, Code::kResourceExhausted);
  EXPECT_EQ(asked.now().status.reason, "deadline");
  EXPECT_EQ(asked.now().count, 1);
  EXPECT_EQ(a[0]->waiting + a[1]->waiting, 4U);
}

// Prevents: a request that failed, or whose client is gone, is run again elsewhere.
TEST_F(TwoDispatchers, OnlyARefusalGoesElsewhere) {
  const Replicas a{add("a", 0), add("a", 1)};
  stage_.fail = true;
  auto failed = ask(a);
  advance_ms(20);
  EXPECT_EQ(failed.now().status.code, Code::kInternal);
  stage_.fail = false;
  auto running = ask({a[0]});
  auto waiting = ask(a, 0);
  devices_[0].dispatcher->cancel(3);
  EXPECT_EQ(waiting.now().status.code, Code::kCancelled);
  EXPECT_THAT(stage_.steps(0), ElementsAre("a0[1] 0+1", "a0[1] 0+1"));
}

// Prevents: a device on which a model fails at once, and which is therefore always done first,
// draws all requests to itself. It is tried again later.
TEST_F(TwoDispatchers, ADeviceOnWhichAModelFailsIsAvoidedForAWhile) {
  Replicas a{add("a", 0), add("a", 1)};
  stage_.fail = true;
  auto failed = ask(a);
  advance_ms(20);
  EXPECT_EQ(failed.now().status.code, Code::kInternal);
  EXPECT_EQ(earliest(a, 1), a.begin() + 1);
  auto failed_too = ask({a[1]});
  advance_ms(20);
  EXPECT_EQ(earliest(a, 1), a.begin()) << "it fails on both";
  stage_.fail = false;
  advance_ms(970);
  EXPECT_EQ(earliest(a, 1), a.begin()) << "its time is over";
  auto good = ask({a[1]});
  advance_ms(10);
  EXPECT_TRUE(good.now().status.ok());
}

// Prevents: two requests at the same time that both go to the first device, because the one that a
// round has read, and not yet counted, seems to be nowhere.
TEST_F(TwoDispatchers, ARequestIsAheadWhileARoundReadsIt) {
  const auto a = add("a", 0);
  std::uint64_t seen_ms = 0;
  hosts_[0]->takes = [&](const Execution&, const scheduler::Step&) {
    seen_ms = ahead_ms(0);
    return 10 * kMs;
  };
  auto asked = ask({a});
  EXPECT_EQ(seen_ms, 10U);
  EXPECT_EQ(ahead_ms(0), 10U);
}

// Prevents: a drain that is over while a request is on a device that was empty before the request
// came there.
TEST_F(TwoDispatchers, ADrainFindsARequestThatMovesMeanwhile) {
  const Replicas a{add("a", 1), add("a", 0)};
  const auto lax = add("lax", 1, 4);
  Asked late;
  Pending last;
  last.items = 1;
  set_input(last.request, {1, 2});
  last.done = [&](const Status&, const Response&) { late = ask(a, 15); };
  a[0]->waiting.fetch_add(1);
  devices_[1].dispatcher->submit(a[0], std::move(last));
  auto other = ask({lax});
  EXPECT_TRUE(drain({&devices_[0], &devices_[1]}, hosts_[0]->now_ns() + 1000 * kMs));
  EXPECT_TRUE(other.now().status.ok());
  EXPECT_TRUE(late.now().status.ok()) << late.now().status.message;
}

// Prevents: a request that runs for a client that is gone, because it moved while its cancellation
// went from device to device.
TEST_F(TwoDispatchers, ARequestOfAClientThatIsGoneIsNotTakenOver) {
  const auto a = add("a", 0);
  const auto gone = std::make_shared<std::atomic<bool>>(true);
  Asked asked;
  Pending pending;
  pending.items = 1;
  set_input(pending.request, {1, 2});
  pending.done = asked.done();
  pending.gone = gone;
  a->waiting.fetch_add(1);
  devices_[0].dispatcher->hand_over(a, std::move(pending));
  EXPECT_EQ(asked.now().status.code, Code::kCancelled);
  EXPECT_EQ(a->waiting, 0U);
  EXPECT_TRUE(stage_.steps(0).empty());
}

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
  stages_[1].step_time = std::chrono::milliseconds(1);  // so the first is better if both are idle
  start({on("a", {0, 1}), on("b", {0})});
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  std::uint64_t id = 0;
  for (int i = 0; i < 2; ++i) {  // which teaches the notice
    if (id != 0) ask("a", id).wait();
    pause();  // the busy period ends just after the answer
    id = server_->headers("a", 8);
    pause();
  }
  stages_[0].hold();
  auto busy = ask("b");
  pause();  // the longer it takes, the later it will be done
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
