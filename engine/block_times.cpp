#include "engine/block_times.hpp"

#include <array>
#include <span>
#include <utility>

#include "base/clock.hpp"
#include "base/statistics.hpp"

namespace sluice::engine {
namespace {

/// The side of an input that may have any.
constexpr std::int64_t kAnySide = 64;

/// A request of zeros, and their memory.
class Zeros {
 public:
  Zeros(const std::vector<TensorSpec>& specs, std::size_t items) {
    for (const TensorSpec& spec : specs) {
      std::vector<std::int64_t> shape{static_cast<std::int64_t>(items)};
      for (const std::int64_t side : spec.shape) shape.push_back(side < 0 ? kAnySide : side);
      const auto& bytes = data_.emplace_back(element_count(shape).value() * size_of(spec.type));
      requests_[0].push_back({spec.name, spec.type, shape, bytes});
    }
  }
  [[nodiscard]] const std::vector<std::vector<Tensor>>& requests() const { return requests_; }

 private:
  std::vector<std::vector<std::byte>> data_;
  std::vector<std::vector<Tensor>> requests_{1};
};

/// The times of each block.
using BlockSamples = std::vector<std::vector<double>>;

std::vector<double> medians_of(const BlockSamples& samples) {
  std::vector<double> medians;
  for (const auto& of_block : samples) medians.push_back(base::percentile(of_block, 0.5));
  return medians;
}

std::unique_ptr<Batch> begin(ServedModel& model, const Zeros& zeros) {
  auto batch = model.begin(zeros.requests());
  while (!batch->done()) {
  }
  return batch;
}

double run_block(Batch& batch, std::size_t block) {
  const std::uint64_t begin = base::monotonic_ns();
  batch.launch(block, 1);
  while (!batch.done()) {
  }
  return static_cast<double>(base::monotonic_ns() - begin) / 1e6;
}

/// The median times of the blocks of each model, a batch of each in turn.
std::vector<std::vector<double>> time_in_turn(std::span<ServedModel* const> models,
                                              std::size_t items, int repeats) {
  // The first runs load kernels, create handles and let the clocks rise.
  constexpr int kWarmUps = 3;
  const Zeros zeros(models.front()->inputs(), items);
  std::vector<BlockSamples> samples;
  for (const ServedModel* model : models) samples.emplace_back(model->blocks());
  for (int i = -kWarmUps; i < repeats; ++i) {
    for (std::size_t m = 0; m < models.size(); ++m) {
      const auto batch = begin(*models[m], zeros);
      for (std::size_t block = 0; block < samples[m].size(); ++block) {
        const double took = run_block(*batch, block);
        if (i >= 0) samples[m][block].push_back(took);
      }
    }
  }
  std::vector<std::vector<double>> medians;
  for (const BlockSamples& of_model : samples) medians.push_back(medians_of(of_model));
  return medians;
}

}  // namespace

std::vector<double> time_blocks(ServedModel& model, std::size_t items, int repeats) {
  const std::array models{&model};
  return time_in_turn(models, items, repeats)[0];
}

SplitTimes time_split(ServedModel& split, ServedModel& whole, std::size_t items, int repeats) {
  const std::array models{&split, &whole};
  auto ms = time_in_turn(models, items, repeats);
  return {std::move(ms[0]), ms[1].at(0)};
}

}  // namespace sluice::engine
