#include "engine/dummy_model.hpp"

#include <fmt/format.h>

#include "base/clock.hpp"

namespace sluice::engine {
namespace {

class DummyBatch : public Batch {
 public:
  DummyBatch(std::vector<std::byte> data, std::vector<std::int64_t> shape, std::uint64_t block_us)
      : data_(std::move(data)), shape_(std::move(shape)), block_us_(block_us) {}

  void launch(std::size_t /*first*/, std::size_t count) override {
    done_ns_ = base::monotonic_ns() + count * block_us_ * 1000;
  }
  bool done() override { return base::monotonic_ns() >= done_ns_; }
  std::vector<Tensor> outputs() override { return {{"output0", DataType::kFp32, shape_, data_}}; }

 private:
  std::vector<std::byte> data_;
  std::vector<std::int64_t> shape_;
  std::uint64_t block_us_;
  std::uint64_t done_ns_ = 0;
};

class DummyModel : public ServedModel {
 public:
  explicit DummyModel(const DummyOptions& options) : options_(options) {}

  std::string describe() const override {
    return fmt::format("dummy: answers with its input after {} us",
                       options_.blocks * options_.block_us);
  }
  const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const override { return outputs_; }
  std::size_t blocks() const override { return options_.blocks; }

  std::unique_ptr<Batch> begin(std::span<const std::vector<Tensor>> requests) override {
    std::vector<std::byte> data;
    std::vector<std::int64_t> shape = requests.front().front().shape;
    shape.front() = 0;
    for (const auto& tensors : requests) {
      const Tensor& tensor = tensors.front();
      data.insert(data.end(), tensor.data.begin(), tensor.data.end());
      shape.front() += tensor.shape.front();
    }
    return std::make_unique<DummyBatch>(std::move(data), std::move(shape), options_.block_us);
  }

 private:
  DummyOptions options_;
  std::vector<TensorSpec> inputs_{{"input0", DataType::kFp32, {-1}}};
  std::vector<TensorSpec> outputs_{{"output0", DataType::kFp32, {-1}}};
};

}  // namespace

std::unique_ptr<ServedModel> make_dummy(const DummyOptions& options) {
  return std::make_unique<DummyModel>(options);
}

}  // namespace sluice::engine
