#include "engine/torch/torch_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "engine/torch/embedding_rows.hpp"

namespace sluice::engine {
namespace {

bool is_detection(const ModelParts& parts) { return parts.stored.task == "detection"; }

/// Which inputs may hold ids that the model does not have.
std::string unchecked(const ModelParts& parts) {
  std::vector<std::string_view> names;
  for (const TensorSpec& input : parts.inputs) {
    const bool image = input.type == DataType::kUint8;
    if (may_be_ids(input.type) && !image && !input.id_end) names.push_back(input.name);
  }
  if (names.empty()) return "";
  if (parts.stored.task == "text") return ", token ids unchecked";
  return fmt::format(", unchecked if they are ids: {}", fmt::join(names, ", "));
}

}  // namespace

TorchModel::TorchModel(ModelParts parts) : parts_(std::move(parts)) {
  if (is_detection(parts_) && parts_.max_batch > 1) {
    throw base::RunError(
        fmt::format("{} is a detection model, which finds another number of boxes in every image: "
                    "set its batch size to 1, not {}",
                    parts_.stored.file, parts_.max_batch));
  }
  if (!batched() && parts_.max_batch > 1) {
    throw base::RunError(fmt::format("{} has no batch dimension: set its batch size to 0, not {}",
                                     parts_.stored.file, parts_.max_batch));
  }
  learn_outputs();
  if (!parts_.stored.outputs.empty()) check_outputs();
}

std::string TorchModel::describe() const {
  return fmt::format(
      "{} {} of torch {}, {}, {}, on {}{}{}{}", parts_.stored.format, parts_.stored.file,
      parts_.stored.torch_version, blocks() == 1 ? "whole" : fmt::format("{} blocks", blocks()),
      batched() ? fmt::format("batches of up to {}", parts_.max_batch) : "no batches",
      parts_.device.is_cuda() ? "the GPU" : "the CPU",
      parts_.weights ? fmt::format(", {} MiB of weights", parts_.weights->bytes() >> 20) : "",
      unchecked(parts_),
      parts_.uncaptured.empty() ? "" : ", and slower than it could be: " + parts_.uncaptured);
}

void TorchModel::wait_for_weights(std::size_t block) const {
  if (!parts_.weights) return;
  parts_.weights->wait_for_block(parts_.stream ? parts_.stream->get().stream() : nullptr, block);
}

std::size_t TorchModel::rows_for(std::size_t items) const {
  const auto& sizes = parts_.sizes;
  const auto size = std::ranges::find_if(sizes, [&](std::size_t s) { return s >= items; });
  return size == sizes.end() ? items : *size;
}

torch::jit::Stack TorchModel::run_on_zeros(std::size_t rows) const {
  torch::jit::Stack stack = parts_.arguments(zero_batch(inputs(), rows, parts_.device));
  for (const Step& step : parts_.steps) step(stack);
  return stack;
}

std::vector<NamedTensor> TorchModel::named_outputs(const torch::jit::Stack& stack,
                                                   std::size_t rows) const {
  auto found = flatten(stack.size() == 1 ? stack[0] : c10::ivalue::Tuple::create(stack));
  const auto& named = parts_.stored.outputs;
  for (std::size_t i = 0; i < found.size(); ++i) {
    auto& [name, tensor] = found[i];
    if (i < named.size()) name = named[i].name;
    if (is_detection(parts_) || !batched()) tensor = tensor.unsqueeze(0);
    if (tensor.dim() >= 1 && tensor.size(0) == static_cast<std::int64_t>(rows)) continue;
    throw base::RunError(fmt::format(
        "{} cannot be served in batches of {}: its output {} has {} rows; set the batch "
        "size with which it was exported",
        parts_.stored.file, rows, name, tensor.dim() >= 1 ? tensor.size(0) : 0));
  }
  return found;
}

void TorchModel::learn_outputs() {
  const std::size_t one = rows_for(1);
  for (const auto& [name, tensor] : named_outputs(run_on_zeros(one), one)) {
    TensorSpec spec{name, type_of(tensor), tensor.sizes().slice(1).vec()};
    if (is_detection(parts_) && !spec.shape.empty()) spec.shape[0] = -1;
    outputs_.push_back(std::move(spec));
  }
  if (outputs_.empty()) throw base::RunError(parts_.stored.file + " returns no tensor");
  // A model that was traced with one batch size may only pretend to take another.
  if (parts_.max_batch > 1 && rows_for(2) != one) {
    const std::size_t two = rows_for(2);
    static_cast<void>(
        in_torch(fmt::format("{} runs with one item, but not with {}: set its batch size to 1",
                             parts_.stored.file, two),
                 [&] { return named_outputs(run_on_zeros(two), two); }));
  }
}

/// The outputs as the import has seen them, where their sizes depend on the inputs.
void TorchModel::check_outputs() {
  const auto& wanted = parts_.stored.outputs;
  const bool same = std::ranges::equal(outputs_, wanted, [](const auto& found, const auto& want) {
    return found.type == want.type &&
           std::ranges::equal(found.shape, want.shape, [](std::int64_t size, std::int64_t may) {
             return may < 0 || size == may;
           });
  });
  if (!same) {
    throw base::RunError(parts_.stored.file +
                         " has other outputs than at its import; import it again");
  }
  outputs_ = wanted;
}

void require_next(std::size_t first, std::size_t next) {
  if (first == next) return;
  throw base::RunError(fmt::format("block {} was launched, but block {} is next", first, next));
}

std::vector<Tensor> as_tensors(const std::vector<NamedTensor>& outputs) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : outputs) {
    const auto* bytes = static_cast<const std::byte*>(tensor.const_data_ptr());
    tensors.push_back({name, type_of(tensor), tensor.sizes().vec(), {bytes, tensor.nbytes()}});
  }
  return tensors;
}

}  // namespace sluice::engine
