#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/models/config_file.hpp"
#include "server/service/service.hpp"

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

/// Rows of two values: the input of the fake models.
inline void set_input(Request& request, std::vector<float> values) {
  auto data = std::make_shared<std::vector<float>>(std::move(values));
  request.inputs.push_back({"input0",
                            engine::DataType::kFp32,
                            {static_cast<std::int64_t>(data->size() / 2), 2},
                            std::as_bytes(std::span(*data))});
  request.storage = data;
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
    return now();
  }
  /// The answer, which has to be there.
  [[nodiscard]] Answer now() const {
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

}  // namespace sluice::server
