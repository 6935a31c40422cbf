#include "server/requests/check_request.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

namespace sluice::server {
namespace {

using engine::Tensor;
using engine::TensorSpec;

Status invalid(std::string message) {
  return {Code::kInvalidArgument, std::move(message), 0, "unfit"};
}

std::string names_of(const std::vector<TensorSpec>& specs) {
  std::vector<std::string_view> names;
  for (const TensorSpec& spec : specs) names.push_back(spec.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

bool fits(const TensorSpec& spec, const std::vector<std::int64_t>& shape) {
  if (shape.size() != spec.shape.size() + 1) return false;
  for (std::size_t i = 0; i < spec.shape.size(); ++i) {
    const bool any = spec.shape[i] < 0;
    // No model was tried with nothing.
    if (any ? shape[i + 1] < 1 : spec.shape[i] != shape[i + 1]) return false;
  }
  return true;
}

/// The shape that a client must send.
std::string wanted_shape(const TensorSpec& spec, bool batched) {
  return fmt::format("{}{}{}", batched ? "batch" : "", batched && !spec.shape.empty() ? "," : "",
                     fmt::join(spec.shape, ","));
}

std::string check_tensor(const TensorSpec& spec, const Tensor& tensor, bool batched) {
  if (tensor.type != spec.type) {
    const bool text = tensor.type == engine::DataType::kBytes;
    return fmt::format("input '{}': found datatype {}, expected {}{}", spec.name,
                       to_string(tensor.type), to_string(spec.type),
                       text ? "; the model takes numbers, such as token ids, and no text" : "");
  }
  if (!fits(spec, tensor.shape)) {
    const std::span<const std::int64_t> found = tensor.shape;
    return fmt::format("input '{}': found shape [{}], expected [{}]", spec.name,
                       fmt::join(batched ? found : found.subspan(1), ","),
                       wanted_shape(spec, batched));
  }
  const std::string fault = check_ids(spec, tensor);
  return fault.empty() ? "" : fmt::format("input '{}': {}", spec.name, fault);
}

/// Brings the inputs into the order of the specifications.
Status order_inputs(const engine::ServedModel& model, std::vector<Tensor>& inputs) {
  const std::vector<TensorSpec>& specs = model.inputs();
  std::vector<Tensor> ordered;
  for (const TensorSpec& spec : specs) {
    const auto found = std::find_if(inputs.begin(), inputs.end(),
                                    [&](const Tensor& tensor) { return tensor.name == spec.name; });
    if (found == inputs.end()) return invalid(fmt::format("input '{}' is missing", spec.name));
    const std::string fault = check_tensor(spec, *found, model.batched());
    if (!fault.empty()) return invalid(fault);
    ordered.push_back(std::move(*found));
    inputs.erase(found);
  }
  if (!inputs.empty()) {
    return invalid(fmt::format("unknown input '{}', the model takes: {}", inputs.front().name,
                               names_of(specs)));
  }
  inputs = std::move(ordered);
  return {};
}

}  // namespace

Status check_request(const engine::ServedModel& model, std::size_t batch_size, Request& request,
                     std::size_t& items) {
  if (!model.batched()) {
    for (Tensor& input : request.inputs) input.shape.insert(input.shape.begin(), 1);
  }
  if (Status status = order_inputs(model, request.inputs); !status.ok()) return status;
  items = static_cast<std::size_t>(request.inputs.front().shape.front());
  for (const Tensor& input : request.inputs) {
    if (static_cast<std::size_t>(input.shape.front()) != items) {
      return invalid("the inputs have different batch dimensions");
    }
  }
  if (items < 1 || items > batch_size) {
    return invalid(fmt::format("found a batch of {}, allowed: 1 to {}", items, batch_size));
  }
  for (const std::string& name : request.outputs) {
    const auto& specs = model.outputs();
    const bool known = std::any_of(specs.begin(), specs.end(),
                                   [&](const TensorSpec& spec) { return spec.name == name; });
    if (!known) {
      return invalid(
          fmt::format("unknown output '{}', the model gives: {}", name, names_of(specs)));
    }
  }
  return {};
}

}  // namespace sluice::server
