#include "tests/engine/torch/served_fixture.hpp"

#include <cstdlib>
#include <cstring>
#include <random>

#include "engine/torch/split_target.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::test {
namespace {

std::vector<std::int64_t> shape_of(const engine::TensorSpec& spec, std::size_t items) {
  constexpr std::int64_t kAnySide = 24;
  std::vector<std::int64_t> shape{static_cast<std::int64_t>(items)};
  for (const std::int64_t side : spec.shape) shape.push_back(side < 0 ? kAnySide : side);
  return shape;
}

template <class Number>
void fill(std::vector<std::byte>& data, unsigned seed, Number scale) {
  std::mt19937 random(seed);
  for (std::size_t at = 0; at < data.size(); at += sizeof(Number)) {
    const auto number = static_cast<Number>(static_cast<Number>(random() % 1000) * scale);
    std::memcpy(&data[at], &number, sizeof number);
  }
}

}  // namespace

Input::Input(const engine::TensorSpec& spec, std::size_t items, unsigned seed)
    : tensor_{spec.name, spec.type, shape_of(spec, items), {}} {
  data_->resize(engine::element_count(tensor_.shape).value() * engine::size_of(spec.type));
  if (spec.type == engine::DataType::kInt64) {
    fill<std::int64_t>(*data_, seed, 1);
  } else {
    fill<float>(*data_, seed, 0.003F);
  }
  tensor_.data = *data_;
}

Input::Input(const engine::TensorSpec& spec, std::size_t items, const std::string& file)
    : tensor_{spec.name, spec.type, shape_of(spec, items), {}} {
  const std::string text = read_file(file);
  data_->resize(text.size());
  std::memcpy(data_->data(), text.data(), text.size());
  tensor_.data = *data_;
}

Bytes bytes_of(engine::Batch& batch) {
  while (!batch.done()) {
  }
  Bytes bytes;
  for (const auto& output : batch.outputs()) {
    EXPECT_EQ(check_data(output.type, output.shape, output.data), "");
    bytes.insert(bytes.end(), output.data.begin(), output.data.end());
  }
  EXPECT_FALSE(bytes.empty());
  return bytes;
}

std::unique_ptr<engine::Batch> begin(engine::ServedModel& model,
                                     const std::vector<Input>& requests) {
  std::vector<std::vector<engine::Tensor>> tensors;
  for (const Input& input : requests) tensors.push_back(input.request());
  return model.begin(tensors);
}

Bytes run_blocks(engine::ServedModel& model, const std::vector<Input>& requests) {
  const auto batch = begin(model, requests);
  for (std::size_t block = 0; block < model.blocks(); ++block) batch->launch(block, 1);
  return bytes_of(*batch);
}

void ServedTest::SetUp() { engine::use_threads(1); }

std::optional<int> ServedTest::gpu() {
  const char* gpu = std::getenv("SLUICE_TEST_GPU");
  return gpu != nullptr ? std::optional(std::atoi(gpu)) : std::nullopt;
}

engine::StoredModel ServedTest::stored(const std::string& model, const std::string& format,
                                       int batch) {
  engine::ModelSpec spec;
  spec.model_name = model;
  spec.backend = format;
  spec.batch_size = batch;
  const engine::TorchTarget target{false, "", SLUICE_TORCH_VERSION};
  const char* store = model == "classifier" ? SLUICE_TEST_RUNNER_STORE : SLUICE_TEST_MODELS;
  return find_stored_model({store, false}, spec, target, "test");
}

std::unique_ptr<engine::ServedModel> ServedTest::load(const std::string& model,
                                                      std::size_t max_batch,
                                                      std::vector<std::size_t> cuts) {
  return load_served(stored(model), {gpu(), max_batch, std::move(cuts)});
}

std::string ServedTest::file(const std::string& model, const std::string& name) {
  return SLUICE_TEST_MODELS "/" + model + "/" + name;
}

std::vector<std::size_t> ServedTest::cuts_of(const std::string& model) {
  const engine::SplitTarget target(stored(model), {});
  std::vector<std::size_t> nodes;
  for (const engine::Cut& cut : target.cuts()) nodes.push_back(cut.node);
  return nodes;
}

std::string ServedTest::refusal(engine::ServedModel& model,
                                const std::vector<engine::Tensor>& request) {
  try {
    static_cast<void>(model.begin({{request}}));
    return "";
  } catch (const base::RunError& error) {
    return error.what();
  }
}

}  // namespace sluice::test
