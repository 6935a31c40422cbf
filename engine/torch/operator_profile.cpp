#include "engine/torch/operator_profile.hpp"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/record_function.h>
#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/clock.hpp"
#include "base/statistics.hpp"
#include "engine/torch/cuda_device.hpp"
#include "engine/torch/load_parts.hpp"

namespace sluice::engine {
namespace {

constexpr int kWarmUps = 2;

/// The operators of one pass. Operators that others call are parts of these.
struct Pass {
  const KernelCollection* kernels = nullptr;
  std::size_t node = 0;
  int depth = 0;
  std::uint64_t begin_ns = 0;
  std::vector<OperatorTimes> operators{};
};

/// LibTorch's callbacks have no argument of ours.
constinit thread_local Pass* t_pass = nullptr;

std::string shapes(c10::ArrayRef<const c10::IValue> inputs) {
  std::string text;
  for (const c10::IValue& input : inputs) {
    if (!input.isTensor() || !input.toTensor().defined()) continue;
    if (!text.empty()) text += ' ';
    const auto sizes = input.toTensor().sizes();
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      text += (i > 0 ? "x" : "") + std::to_string(sizes[i]);
    }
    if (sizes.empty()) text += "1";
  }
  return text;
}

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& function) {
  if (t_pass == nullptr || t_pass->depth++ > 0) return nullptr;
  t_pass->operators.push_back(
      {.node = t_pass->node, .name = function.name(), .inputs = shapes(function.inputs())});
  if (t_pass->kernels != nullptr) t_pass->kernels->begin(t_pass->operators.size());
  t_pass->begin_ns = base::monotonic_ns();
  return nullptr;
}

void on_end(const at::RecordFunction&, at::ObserverContext*) {
  if (t_pass == nullptr || --t_pass->depth > 0) return;
  t_pass->operators.back().ms = static_cast<double>(base::monotonic_ns() - t_pass->begin_ns) / 1e6;
  if (t_pass->kernels != nullptr) t_pass->kernels->end();
}

/// Observes the operators that this thread calls.
class Observer {
 public:
  Observer()
      : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(&on_begin, &on_end)
                                               .needsInputs(true)
                                               .scopes({at::RecordScope::FUNCTION}))) {}
  Observer(const Observer&) = delete;
  Observer& operator=(const Observer&) = delete;
  ~Observer() { at::removeCallback(handle_); }

 private:
  at::CallbackHandle handle_;
};

/// The operators of one batch, each with the node at which its part of the model begins.
std::vector<OperatorTimes> run_once(const ModelParts& parts, const std::vector<std::size_t>& nodes,
                                    const KernelCollection* kernels) {
  auto stack = parts.arguments(zero_batch(parts.inputs, parts.max_batch, parts.device));
  if (parts.device.is_cuda()) synchronise_stream();
  if (kernels != nullptr) (void)kernels->take();
  Pass pass{.kernels = kernels};
  t_pass = &pass;
  for (std::size_t i = 0; i < parts.steps.size(); ++i) {
    pass.node = nodes[i];
    parts.steps[i](stack);
  }
  t_pass = nullptr;
  if (kernels == nullptr) return std::move(pass.operators);
  synchronise_stream();
  for (OperatorTimes& times : pass.operators) times.ms = 0;
  for (auto& [mark, kernel] : kernels->take()) {
    OperatorTimes& times = pass.operators.at(mark - 1);
    times.ms += kernel.ms;
    times.kernels.push_back(std::move(kernel));
  }
  return std::move(pass.operators);
}

/// The median of each time. All passes have the same operators, and these the same kernels.
std::vector<OperatorTimes> medians(std::vector<std::vector<OperatorTimes>> passes,
                                   const std::string& model) {
  std::vector<OperatorTimes> found = passes.front();
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::vector<double> ms;
    for (const auto& pass : passes) {
      if (pass.size() != found.size() || pass[i].name != found[i].name ||
          pass[i].kernels.size() != found[i].kernels.size()) {
        throw base::RunError(model + ": does not run the same operators every time");
      }
      ms.push_back(pass[i].ms);
    }
    found[i].ms = base::percentile(std::move(ms), 0.5);
    for (std::size_t k = 0; k < found[i].kernels.size(); ++k) {
      std::vector<double> kernel_ms;
      for (const auto& pass : passes) kernel_ms.push_back(pass[i].kernels[k].ms);
      found[i].kernels[k].ms = base::percentile(std::move(kernel_ms), 0.5);
    }
  }
  return found;
}

}  // namespace

std::vector<OperatorTimes> profile_operators(const StoredModel& model, const ServeOptions& options,
                                             int repeats, const KernelCollection* kernels) {
  const c10::InferenceMode inference;
  return in_torch(model.file, [&] {
    const c10::Device device = torch_device(options.gpu);
    const auto graph = load_graph(model, device);
    std::vector<std::size_t> nodes{0};
    ServeOptions everywhere = options;
    everywhere.cuts.clear();
    for (const Cut& cut : graph->cuts()) {
      everywhere.cuts.push_back(cut.node);
      nodes.push_back(cut.node);
    }
    const ModelParts parts = script_parts(graph, model, device, everywhere);
    const Observer observer;
    std::vector<std::vector<OperatorTimes>> passes;
    for (int i = 0; i < kWarmUps + repeats; ++i) {
      auto pass = run_once(parts, nodes, kernels);
      if (i >= kWarmUps) passes.push_back(std::move(pass));
    }
    auto found = medians(std::move(passes), model.file);
    const bool any = std::ranges::any_of(
        found, [](const OperatorTimes& times) { return !times.kernels.empty(); });
    if (kernels != nullptr && !any) throw base::RunError("CUPTI reported no kernel");
    return found;
  });
}

std::uint32_t sm_count(int gpu) {
  return static_cast<std::uint32_t>(
      at::cuda::getDeviceProperties(static_cast<c10::DeviceIndex>(gpu))->multiProcessorCount);
}

}  // namespace sluice::engine
