#include "engine/torch/served_torch.hpp"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "engine/torch/cuda_device.hpp"
#include "engine/torch/load_parts.hpp"

namespace sluice::engine {

std::unique_ptr<ServedModel> load_served(const StoredModel& model, const ServeOptions& options) {
  const c10::InferenceMode inference;
  return in_torch(model.file, [&] {
    const c10::Device device = torch_device(options.gpu);
    if (model.format == "aoti") return serve(compiled_parts(model, device, options), options);
    const auto graph = load_graph(model, device);
    auto weights = move_weights(*graph, model, device, options);
    ModelParts parts = script_parts(graph, model, device, options);
    parts.weights = std::move(weights);
    return serve(std::move(parts), options);
  });
}

std::string torch_device_name(const std::optional<int>& gpu) {
  return gpu ? gpu_arch(torch_device(gpu)) : "cpu";
}

int torch_gpus() { return gpu_count(); }

void use_threads(int threads) { at::set_num_threads(threads); }

}  // namespace sluice::engine
