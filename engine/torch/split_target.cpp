#include "engine/torch/split_target.hpp"

#include <c10/core/InferenceMode.h>

#include "base/clock.hpp"
#include "engine/torch/cuda_device.hpp"
#include "engine/torch/load_parts.hpp"

namespace sluice::engine {

struct SplitTarget::Parts {
  StoredModel model;
  ServeOptions options;
  c10::Device device{c10::kCPU};
  std::shared_ptr<const ScriptGraph> graph{};

  [[nodiscard]] ModelParts cut_at(const std::vector<std::size_t>& cuts) const {
    ServeOptions with_cuts = options;
    with_cuts.cuts = cuts;
    ModelParts made = script_parts(graph, model, device, with_cuts);
    // Only this size is measured, so capturing others would only take time.
    made.sizes = {options.max_batch};
    return made;
  }
  /// Loaded once, because every candidate is compared with it.
  [[nodiscard]] ServedModel& uncut() {
    if (!whole) whole = serve(cut_at({}), options);
    return *whole;
  }

  std::unique_ptr<ServedModel> whole{};
};

SplitTarget::SplitTarget(const StoredModel& model, const ServeOptions& options)
    : parts_(std::make_unique<Parts>(Parts{.model = model, .options = options})) {
  const c10::InferenceMode inference;
  in_torch(model.file, [this] {
    parts_->device = torch_device(parts_->options.gpu);
    parts_->graph = load_graph(parts_->model, parts_->device);
  });
}

SplitTarget::~SplitTarget() = default;

std::size_t SplitTarget::nodes() const { return parts_->graph->nodes(); }
const std::vector<Cut>& SplitTarget::cuts() const { return parts_->graph->cuts(); }

std::vector<double> SplitTarget::prefix_ms() const {
  const c10::InferenceMode inference;
  return in_torch(parts_->model.file, [this] {
    std::vector<std::size_t> everywhere;
    for (const Cut& cut : cuts()) everywhere.push_back(cut.node);
    const ModelParts parts = parts_->cut_at(everywhere);
    const auto run = [&] {
      std::vector<double> ms;
      auto stack = parts.arguments(zero_batch(parts.inputs, parts.max_batch, parts.device));
      const std::uint64_t begin = base::monotonic_ns();
      for (const Step& step : parts.steps) {
        step(stack);
        if (parts.device.is_cuda()) synchronise_stream();
        ms.push_back(static_cast<double>(base::monotonic_ns() - begin) / 1e6);
      }
      return ms;
    };
    static_cast<void>(run());  // first uses take longer
    return run();
  });
}

double SplitTarget::whole_ms(int repeats) const {
  const c10::InferenceMode inference;
  return in_torch(parts_->model.file, [&] {
    return time_blocks(parts_->uncut(), parts_->options.max_batch, repeats).at(0);
  });
}

SplitTimes SplitTarget::times(const std::vector<std::size_t>& cuts, int repeats) const {
  const c10::InferenceMode inference;
  return in_torch(parts_->model.file, [&] {
    const auto model = serve(parts_->cut_at(cuts), parts_->options);
    return time_split(*model, parts_->uncut(), parts_->options.max_batch, repeats);
  });
}

}  // namespace sluice::engine
