#include "server/loader.hpp"

#include <sluice/sluice.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "base/clock.hpp"

namespace sluice::server {
namespace {

using engine::DataType;
using engine::Tensor;

/// Zeros for each input of a model. A dimension of any size becomes 1.
struct Zeros {
  std::vector<Tensor> tensors;
  std::vector<std::vector<std::byte>> data;
};

Zeros zeros_for(const engine::ServedModel& model, std::size_t items) {
  Zeros zeros;
  for (const engine::TensorSpec& spec : model.inputs()) {
    Tensor tensor{spec.name, spec.type, {static_cast<std::int64_t>(items)}, {}};
    for (const std::int64_t size : spec.shape) tensor.shape.push_back(size < 0 ? 1 : size);
    // An empty element of kBytes is a length of 0 in 4 bytes.
    const std::size_t bytes = spec.type == DataType::kBytes ? 4 : engine::size_of(spec.type);
    zeros.data.emplace_back(engine::element_count(tensor.shape).value() * bytes);
    zeros.tensors.push_back(std::move(tensor));
  }
  for (std::size_t i = 0; i < zeros.data.size(); ++i) zeros.tensors[i].data = zeros.data[i];
  return zeros;
}

/// The time of each block in one execution.
std::vector<std::uint64_t> time_blocks(engine::ServedModel& model, const Zeros& zeros) {
  const std::array requests{zeros.tensors};
  const auto batch = model.begin(requests);
  std::vector<std::uint64_t> times;
  for (std::size_t block = 0; block < model.blocks(); ++block) {
    const std::uint64_t begin = base::monotonic_ns();
    batch->launch(block, 1);
    while (!batch->done()) std::this_thread::sleep_for(std::chrono::microseconds(10));
    times.push_back(base::monotonic_ns() - begin);
  }
  return times;
}

/// The least of a few timed executions after a few cold ones, block by block.
std::vector<std::uint64_t> measure(engine::ServedModel& model, std::size_t items) {
  constexpr int kCold = 3;
  constexpr int kTimed = 3;
  const Zeros zeros = zeros_for(model, items);
  for (int i = 0; i < kCold; ++i) static_cast<void>(time_blocks(model, zeros));
  auto least = time_blocks(model, zeros);
  for (int i = 1; i < kTimed; ++i) {
    const auto times = time_blocks(model, zeros);
    for (std::size_t block = 0; block < least.size(); ++block) {
      least[block] = std::min(least[block], times[block]);
    }
  }
  return least;
}

/// Best effort does not run while a model is measured. The first job also ends the search for
/// transparent jobs in this process, which would count the work of best-effort models as jobs.
class MeasuringJob {
 public:
  MeasuringJob() = default;
  MeasuringJob(const MeasuringJob&) = delete;
  MeasuringJob& operator=(const MeasuringJob&) = delete;
  ~MeasuringJob() { sluice_job_end(job_); }

 private:
  std::uint64_t job_ = sluice_job_begin(0);
};

}  // namespace

std::shared_ptr<Model> load_model(const ModelConfig& config, const MakeInstance& make) {
  auto model = std::make_shared<Model>(config);
  for (std::size_t i = 0; i < config.num_worker; ++i) {
    auto instance = std::make_unique<Model::Instance>();
    instance->served = make(config);
    model->instances.push_back(std::move(instance));
  }
  const MeasuringJob job;
  model->timing.measured(1, measure(model->served(), 1));
  if (config.batch_size > 1) {
    model->timing.measured(config.batch_size, measure(model->served(), config.batch_size));
  }
  model->limit_ns = model->timing.whole_ns(1);
  return model;
}

}  // namespace sluice::server
