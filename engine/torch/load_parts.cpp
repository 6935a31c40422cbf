#include "engine/torch/load_parts.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "engine/torch/captured_model.hpp"
#include "engine/torch/cuda_device.hpp"
#include "engine/torch/direct_model.hpp"
#include "engine/torch/embedding_rows.hpp"
#include "engine/torch/network.hpp"
#include "engine/torch/torchvision.hpp"

namespace sluice::engine {

c10::Device torch_device(const std::optional<int>& gpu) {
  if (!gpu) return {c10::kCPU};
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(*gpu));
  use_gpu(device);
  return device;
}

std::shared_ptr<ScriptGraph> load_graph(const StoredModel& stored, const c10::Device& device) {
  if (stored.vision) load_detection_operators();
  return std::make_shared<ScriptGraph>(stored.file, device);
}

std::shared_ptr<TorchWeights> move_weights(ScriptGraph& graph, const StoredModel& stored,
                                           const c10::Device& device, const ServeOptions& options) {
  if (!options.placement || !device.is_cuda()) return nullptr;
  // The weights were copied on another stream.
  synchronise_stream();
  const auto changed = std::filesystem::last_write_time(stored.file).time_since_epoch().count();
  const std::string key =
      fmt::format("{} of {} cut at {}", stored.file, changed, fmt::join(options.cuts, ", "));
  auto weights = std::make_shared<TorchWeights>(
      std::make_shared<DeviceContext>(MemoryDriver::loaded(), device.index()), *options.placement,
      device, graph, options.cuts, key);
  release_unused_memory();
  return weights;
}

ModelParts script_parts(std::shared_ptr<const ScriptGraph> graph, const StoredModel& stored,
                        const c10::Device& device, const ServeOptions& options) {
  ModelParts parts{.stored = stored, .device = device, .max_batch = options.max_batch};
  if (device.is_cuda()) parts.sizes = batch_sizes(options.max_batch);
  parts.inputs = input_specs(stored);
  for (std::size_t i = 0; i < parts.inputs.size() && i < graph->id_ends().size(); ++i) {
    if (may_be_ids(parts.inputs[i].type)) parts.inputs[i].id_end = graph->id_ends()[i];
  }
  parts.steps = graph->blocks(options.cuts);
  parts.arguments = [graph = std::move(graph), batched = stored.batched](const Tensors& batch) {
    return graph->arguments(batched ? batch : without_batch(batch));
  };
  return parts;
}

ModelParts compiled_parts(const StoredModel& stored, const c10::Device& device,
                          const ServeOptions& options) {
  if (!options.cuts.empty()) {
    throw base::UsageError(stored.file + " is an AOTInductor package, which cannot be split");
  }
  ModelParts parts{.stored = stored, .device = device, .max_batch = options.max_batch};
  parts.sizes = {options.max_batch};
  parts.inputs = input_specs(stored);
  // The network works on tensors of its own.
  Tensors own = zero_batch(parts.inputs, options.max_batch, device);
  if (!stored.batched) own = without_batch(own);
  parts.steps.emplace_back(
      [own, network = std::shared_ptr(load_compiled(stored, own))](torch::jit::Stack& stack) {
        for (std::size_t i = 0; i < own.size(); ++i) own[i].copy_(stack.at(i).toTensor());
        stack = {network->run()};
      });
  parts.arguments = [batched = stored.batched](const Tensors& batch) {
    const Tensors items = batched ? batch : without_batch(batch);
    return torch::jit::Stack(items.begin(), items.end());
  };
  return parts;
}

std::unique_ptr<ServedModel> serve(ModelParts parts, const ServeOptions& options) {
  if (!parts.device.is_cuda()) return direct_model(std::move(parts));
  // The weights were copied on another stream.
  synchronise_stream();
  parts.stream = std::make_shared<GpuStream>(parts.device);
  // A detection model waits for the GPU to count its boxes.
  if (parts.stored.task == "detection") return direct_model(std::move(parts));
  if (parts.weights && parts.weights->placement() == Placement::kAnywhere) {
    parts.uncaptured = "its weights have no fixed address (--use-sta 0)";
    return direct_model(std::move(parts));
  }
  const bool fixed = std::ranges::all_of(parts.inputs, [](const TensorSpec& spec) {
    return std::ranges::all_of(spec.shape, [](std::int64_t side) { return side >= 0; });
  });
  if (!fixed) {
    parts.uncaptured = "its inputs have sides of any size";
    return direct_model(std::move(parts));
  }
  try {
    return captured_model(parts, options.takes_turns
                                     ? GraphWorkspace::shared(parts.device)
                                     : std::make_shared<GraphWorkspace>(parts.device));
  } catch (const ContextLost&) {
    throw;
  } catch (const OutOfMemory&) {
    throw;
  } catch (const base::RunError& error) {
    // Such as swin_t, which copies numbers from the host. What is wrong with the model itself, the
    // direct run says again.
    parts.uncaptured = error.what();
    return direct_model(std::move(parts));
  }
}

}  // namespace sluice::engine
