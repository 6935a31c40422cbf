#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "server/requests/server.hpp"
#include "tests/server/fake_model.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::server {

inline constexpr auto kLimit = std::chrono::seconds(10);

inline ModelConfig model(std::string name, std::size_t batch_size = 1, std::size_t blocks = 1) {
  ModelConfig config;
  config.name = std::move(name);
  config.path = config.name;
  config.batch_size = batch_size;
  config.blocks = blocks;
  return config;
}

/// An answer that a test waits for.
struct Answer {
  Status status;
  std::vector<float> values;
  int count = 0;
};

/// A request that a test has sent.
class Asked {
 public:
  Answer wait() {
    EXPECT_EQ(future_.wait_for(kLimit), std::future_status::ready) << "no answer";
    return answer_->count > 0 ? *answer_ : Answer{{Code::kInternal, "no answer"}, {}, 0};
  }
  [[nodiscard]] bool answered() const {
    return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  Done done() {
    return [answer = answer_, promise = promise_](const Status& status, const Response& response) {
      answer->status = status;
      for (const engine::Tensor& output : response.outputs) {
        const auto* data = reinterpret_cast<const float*>(output.data.data());
        answer->values.assign(data, data + output.data.size() / sizeof(float));
      }
      if (++answer->count == 1) promise->set_value();
    };
  }
  std::shared_ptr<Cancellation> cancellation;

 private:
  std::shared_ptr<Answer> answer_ = std::make_shared<Answer>();
  std::shared_ptr<std::promise<void>> promise_ = std::make_shared<std::promise<void>>();
  std::future<void> future_ = promise_->get_future();
};

/// A server of fake models, without its protocols.
class ServerTest : public testing::Test {
 protected:
  Server& start(std::vector<ModelConfig> models, ServerOptions options = {}) {
    options.records_file = records_;
    server_ = std::make_unique<Server>(
        options, std::move(models),
        [this](const ModelConfig& config) -> std::unique_ptr<engine::ServedModel> {
          if (config.path == "broken") throw base::RunError("no such file");
          if (config.path == "lost") throw engine::ContextLost("the device is gone");
          if (config.path == "damaged") throw base::RunError("found \xff in model.json");
          return std::make_unique<FakeModel>(config.name, std::max<std::size_t>(1, config.blocks),
                                             stage_);
        },
        Server::Events{[] {}, [this](const std::string& why) { lost_ = why; },
                       [](const std::string&) {}});
    server_->preload();
    stage_.forget_steps();
    return *server_;
  }

  static Request request(const std::string& model, std::vector<float> values) {
    Request request;
    request.id = "r";
    request.model = model;
    request.headers_ns = base::monotonic_ns();
    auto data = std::make_shared<std::vector<float>>(std::move(values));
    request.inputs.push_back({"input0",
                              engine::DataType::kFp32,
                              {static_cast<std::int64_t>(data->size() / 2), 2},
                              std::as_bytes(std::span(*data))});
    request.storage = data;
    return request;
  }

  Asked ask(Request request) {
    Asked asked;
    asked.cancellation = server_->infer(std::move(request), asked.done());
    return asked;
  }
  Asked ask(const std::string& model, std::vector<float> values = {1, 2}) {
    return ask(request(model, std::move(values)));
  }

  std::vector<nlohmann::json> records() {
    std::ifstream in(records_);
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(in, line);) all.push_back(nlohmann::json::parse(line));
    return all;
  }

  test::TempFolder folder_;
  std::string records_ = folder_.file("records.jsonl");
  Stage stage_;
  std::string lost_;
  std::unique_ptr<Server> server_;
};

}  // namespace sluice::server
