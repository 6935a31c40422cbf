#pragma once
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "server/requests/server.hpp"
#include "tests/server/asked.hpp"
#include "tests/server/fake_model.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::server {

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
    set_input(request, std::move(values));
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
