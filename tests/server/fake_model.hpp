#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/context_lost.hpp"
#include "engine/served_model.hpp"

namespace sluice::server {

/// What a test sees and decides of the steps of fake models.
class Stage {
 public:
  /// Steps end only when the test lets them.
  void hold() {
    const std::lock_guard lock(mutex_);
    holding_ = true;
  }
  void release() {
    const std::lock_guard lock(mutex_);
    holding_ = false;
  }
  [[nodiscard]] bool may_end() const {
    const std::lock_guard lock(mutex_);
    return !holding_;
  }
  void began(std::string step) {
    const std::lock_guard lock(mutex_);
    steps_.push_back(std::move(step));
    changed_.notify_all();
  }
  /// The steps so far, such as "a[2] 0+1": model, items, first block, number of blocks. Waits until
  /// there are at least `count`, for at most 10 s.
  std::vector<std::string> steps(std::size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(10), [&] { return steps_.size() >= count; });
    return steps_;
  }
  void forget_steps() {
    const std::lock_guard lock(mutex_);
    steps_.clear();
  }

  /// The least that a step takes.
  std::atomic<std::chrono::milliseconds> step_time{std::chrono::milliseconds(0)};
  std::atomic<bool> fail{false};
  std::atomic<bool> copies_inputs{false};  ///< stage() copies, as a model on a GPU does.
  std::atomic<bool> lose_context{false};
  std::atomic<std::size_t> loads{0};
  std::atomic<int> alive{0};  ///< Models.

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool holding_ = false;
  std::vector<std::string> steps_;
};

/// input0 and output0: FP32 [2]; each output element is the input's plus the number of blocks.
class FakeModel : public engine::ServedModel {
 public:
  FakeModel(std::string name, std::size_t blocks, Stage& stage)
      : name_(std::move(name)), blocks_(blocks), stage_(stage) {
    ++stage_.loads;
    ++stage_.alive;
  }
  FakeModel(const FakeModel&) = delete;
  FakeModel& operator=(const FakeModel&) = delete;
  ~FakeModel() override { --stage_.alive; }

  std::string describe() const override { return "fake"; }
  const std::vector<engine::TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<engine::TensorSpec>& outputs() const override { return outputs_; }
  std::size_t blocks() const override { return blocks_; }

  std::shared_ptr<const void> stage(std::vector<engine::Tensor>& inputs) override {
    if (!stage_.copies_inputs) return nullptr;
    const auto data = inputs.front().data;
    auto copy = std::make_shared<std::vector<std::byte>>(data.begin(), data.end());
    inputs.front().data = *copy;
    return copy;
  }
  std::unique_ptr<engine::Batch> begin(
      std::span<const std::vector<engine::Tensor>> requests) override {
    std::vector<float> values;
    for (const auto& tensors : requests) {
      const auto* data = reinterpret_cast<const float*>(tensors.front().data.data());
      values.insert(values.end(), data, data + tensors.front().data.size() / sizeof(float));
    }
    return std::make_unique<FakeBatch>(*this, std::move(values));
  }

 private:
  class FakeBatch : public engine::Batch {
   public:
    FakeBatch(FakeModel& model, std::vector<float> values)
        : model_(model), values_(std::move(values)) {}

    void launch(std::size_t first, std::size_t count) override {
      model_.stage_.began(model_.name_ + "[" + std::to_string(values_.size() / 2) + "] " +
                          std::to_string(first) + "+" + std::to_string(count));
      if (model_.stage_.lose_context) throw engine::ContextLost("the device is gone");
      if (model_.stage_.fail) throw base::RunError("the kernel failed");
      for (float& value : values_) value += static_cast<float>(count);
      launched_ = std::chrono::steady_clock::now();
    }
    bool done() override {
      const auto took = std::chrono::steady_clock::now() - launched_;
      return took >= model_.stage_.step_time.load() && model_.stage_.may_end();
    }
    std::vector<engine::Tensor> outputs() override {
      return {{"output0",
               engine::DataType::kFp32,
               {static_cast<std::int64_t>(values_.size() / 2), 2},
               std::as_bytes(std::span(values_))}};
    }

   private:
    FakeModel& model_;
    std::vector<float> values_;
    std::chrono::steady_clock::time_point launched_;
  };

  std::string name_;
  std::size_t blocks_;
  Stage& stage_;
  std::vector<engine::TensorSpec> inputs_{{"input0", engine::DataType::kFp32, {2}}};
  std::vector<engine::TensorSpec> outputs_{{"output0", engine::DataType::kFp32, {2}}};
};

}  // namespace sluice::server
