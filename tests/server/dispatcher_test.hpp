#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "server/requests/dispatcher.hpp"
#include "tests/server/asked.hpp"
#include "tests/server/fake_model.hpp"
#include "tests/server/virtual_host.hpp"

namespace sluice::server {

/// A dispatcher of fake models in virtual time.
class DispatcherTest : public testing::Test {
 protected:
  static constexpr std::uint64_t kMs = 1'000'000;

  void start(const DispatcherOptions& options = {}, Turn* turn = nullptr) {
    auto host = std::make_unique<VirtualHost>();
    host_ = host.get();
    host_->takes = [this](const Execution&, const scheduler::Step& step) {
      return step_ms_ * kMs * step.blocks;
    };
    dispatcher_.emplace(
        options, announcer_, memory_,
        [this](const Execution&, Pending& pending, const Status& status, const Response& response) {
          if (answered_) answered_(pending, status);
          pending.done(status, response);
        },
        [this](const std::string& why) {
          if (lost_) lost_(why);
        },
        Dispatcher::Sharing{0, turn, nullptr}, std::move(host));
  }
  /// Adds a model. Each of its blocks is known to take step_ms_, whatever the number of items.
  std::shared_ptr<Model> add(const ModelConfig& config) {
    auto made = std::make_shared<Model>(config);
    const std::size_t blocks = std::max<std::size_t>(1, config.blocks);
    for (std::size_t i = 0; i < config.num_worker; ++i) {
      auto instance = std::make_unique<Model::Instance>();
      instance->served = std::make_unique<FakeModel>(config.name, blocks, stage_);
      made->instances.push_back(std::move(instance));
    }
    made->timing.measured(1, std::vector<std::uint64_t>(blocks, step_ms_ * kMs));
    made->timing.measured(config.batch_size, std::vector<std::uint64_t>(blocks, step_ms_ * kMs));
    made->limits.measured(1, made->timing.whole_ns(1));
    made->id = next_model_++;
    dispatcher_->add_model(made);
    return made;
  }

  struct Wish {
    std::vector<float> values = {1, 2};
    std::optional<std::int64_t> deadline_ms = {};  ///< From now.
    std::uint32_t priority = 0;
  };
  Asked ask(const std::shared_ptr<Model>& model, const Wish& wish) {
    Asked asked;
    Pending pending;
    pending.id = next_request_++;
    pending.items = wish.values.size() / 2;
    pending.times.arrived_ns = host_->now_ns();
    if (wish.deadline_ms) pending.deadline_ns = host_->now_ns() + *wish.deadline_ms * kMs;
    pending.request.priority = wish.priority;
    set_input(pending.request, wish.values);
    pending.done = asked.done();
    model->waiting.fetch_add(1);
    dispatcher_->submit(model, std::move(pending));
    return asked;
  }
  Asked ask(const std::shared_ptr<Model>& model) { return ask(model, Wish{}); }
  void advance_ms(std::uint64_t ms) { host_->advance(ms * kMs); }
  /// The steps so far.
  std::vector<std::string> steps() { return stage_.steps(0); }

  std::uint64_t step_ms_ = 10;
  Stage stage_;
  std::function<void(const Pending&, const Status&)> answered_;
  std::function<void(const std::string&)> lost_;
  VirtualHost* host_ = nullptr;
  std::uint64_t next_request_ = 1;

 private:
  std::uint32_t next_model_ = 1;
  Announcer announcer_{false};
  const ByteBudget memory_{1U << 20U};

 protected:
  std::optional<Dispatcher> dispatcher_;
};

}  // namespace sluice::server
