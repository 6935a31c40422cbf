// A recording behind a server, on the simulated GPU: all its kernels run, in blocks.
#include "engine/recording/served_recording.hpp"

#include <gmock/gmock.h>

#include <thread>

#include "engine/recording/recorded_weights.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/gpu_log.hpp"
#include "tests/support/session.hpp"

namespace sluice::engine {
namespace {

using testing::ElementsAre;

const test::Session kSession("served-recording");
const std::string kGpuLog = kSession.log_gpu();

constexpr std::uint64_t kMs = 1'000'000;

Recording five_kernels() {
  Recording recording;
  recording.model = "m";
  recording.gpu = "g";
  for (std::uint32_t i = 0; i < 5; ++i) {
    recording.kernels.push_back({.duration_ns = kMs, .function = i});
    recording.names.push_back("k" + std::to_string(i));
  }
  return recording;
}

RecordingOptions simulated(std::size_t blocks, std::uint64_t weight_bytes = 0,
                           Placement placement = Placement::kFixed) {
  RecordingOptions options;
  options.blocks = blocks;
  options.simulated = true;
  options.weight_bytes = weight_bytes;
  options.placement = placement;
  return options;
}

std::unique_ptr<Batch> begin(ServedModel& model, std::vector<std::int64_t> items) {
  std::vector<std::vector<Tensor>> requests;
  for (const std::int64_t count : items) {
    requests.push_back({{"input0", DataType::kFp32, {count, 1}, {}}});
  }
  return model.begin(requests);
}

void run(Batch& batch, std::size_t first, std::size_t count) {
  batch.launch(first, count);
  ASSERT_TRUE(test::eventually([&] { return batch.done(); }));
}

template <class Number>
std::vector<Number> numbers_of(const Tensor& tensor) {
  const auto* const data = reinterpret_cast<const Number*>(tensor.data.data());
  return {data, data + tensor.data.size() / sizeof(Number)};
}

/// The kernels that the GPU has run, in order; waits until there are `count`. Names are
/// sluice_spin_NAME.
std::vector<std::string> kernels(std::size_t count) {
  std::vector<std::string> names;
  EXPECT_TRUE(test::eventually([&] {
    names.clear();
    // The GPU process writes the log when it is idle.
    const test::GpuLog log(kGpuLog);
    for (const test::LoggedWork& work : log.all()) {
      if (work.kind == "kernel") names.push_back(work.name.substr(work.name.rfind('_') + 1));
    }
    return names.size() >= count;
  }));
  return names;
}

// Prevents: a model whose last kernels never run, so that a server seems faster than it is.
TEST(ServedRecording, EveryKernelRunsInTheBlockThatItBelongsTo) {
  const auto model = serve_recording(five_kernels(), simulated(2));
  EXPECT_EQ(model->blocks(), 2U);
  EXPECT_EQ(model->weights(), nullptr);
  EXPECT_EQ(model->describe(), "recording m of g: 5 kernels in 2 CUDA graphs, 5.000 ms");
  const auto batch = begin(*model, {1});
  run(*batch, 0, 1);
  EXPECT_THAT(kernels(3), ElementsAre("k0", "k1", "k2"));
  run(*batch, 1, 1);
  EXPECT_THAT(kernels(5), ElementsAre("k0", "k1", "k2", "k3", "k4"));
}

// Prevents: the requests of a batch get one answer together, or one too many.
TEST(ServedRecording, EachItemGetsTheTimeAndTheNumbersOfAllBlocks) {
  for (const Placement placement : {Placement::kFixed, Placement::kAnywhere}) {
    const auto model = serve_recording(five_kernels(), simulated(2, 4096, placement));
    const auto batch = begin(*model, {1, 2});
    run(*batch, 0, 2);
    const std::vector<Tensor> outputs = batch->outputs();
    ASSERT_EQ(outputs.size(), 2U);
    EXPECT_THAT(outputs[0].shape, ElementsAre(3, 1));
    EXPECT_THAT(numbers_of<float>(outputs[0]), ElementsAre(5, 5, 5));
    EXPECT_THAT(outputs[1].shape, ElementsAre(3, 4));
    std::vector<std::uint64_t> expected;
    for (int item = 0; item < 3; ++item) {
      for (const std::uint64_t at : {0U, 255U, 256U, 511U}) {
        expected.push_back(recorded_weight("m", at));
      }
    }
    EXPECT_EQ(numbers_of<std::uint64_t>(outputs[1]), expected);
  }
}

}  // namespace
}  // namespace sluice::engine
