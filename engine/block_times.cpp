#include "engine/block_times.hpp"

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

double run_block(Batch& batch, std::size_t block) {
  const std::uint64_t begin = base::monotonic_ns();
  batch.launch(block, 1);
  while (!batch.done()) {
  }
  return static_cast<double>(base::monotonic_ns() - begin) / 1e6;
}

}  // namespace

std::vector<double> time_blocks(ServedModel& model, std::size_t items, int repeats) {
  // The first runs load kernels, create handles and let the clocks rise.
  constexpr int kWarmUps = 3;
  const Zeros zeros(model.inputs(), items);
  std::vector<std::vector<double>> ms(model.blocks());
  for (int i = -kWarmUps; i < repeats; ++i) {
    const auto batch = model.begin(zeros.requests());
    while (!batch->done()) {
    }
    for (std::size_t block = 0; block < ms.size(); ++block) {
      const double took = run_block(*batch, block);
      if (i >= 0) ms[block].push_back(took);
    }
  }
  std::vector<double> medians;
  for (const auto& sample : ms) medians.push_back(base::percentile(sample, 0.5));
  return medians;
}

}  // namespace sluice::engine
