#include "engine/torch/batch_tensors.hpp"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.hpp"

namespace sluice::engine {
namespace {

constexpr std::array kTypes{
    std::pair{DataType::kBool, at::kBool},     std::pair{DataType::kUint8, at::kByte},
    std::pair{DataType::kInt8, at::kChar},     std::pair{DataType::kInt16, at::kShort},
    std::pair{DataType::kInt32, at::kInt},     std::pair{DataType::kInt64, at::kLong},
    std::pair{DataType::kFp16, at::kHalf},     std::pair{DataType::kBf16, at::kBFloat16},
    std::pair{DataType::kFp32, at::kFloat},    std::pair{DataType::kFp64, at::kDouble},
    std::pair{DataType::kUint16, at::kUInt16}, std::pair{DataType::kUint32, at::kUInt32},
    std::pair{DataType::kUint64, at::kUInt64},
};

DataType input_type(const StoredModel& model) {
  if (model.task == "text") return DataType::kInt64;
  if (model.dtype == "float32") return DataType::kFp32;
  if (model.dtype == "float16") return DataType::kFp16;
  if (model.dtype == "bfloat16") return DataType::kBf16;
  throw base::RunError(fmt::format("{} takes {}, which cannot be served", model.file, model.dtype));
}

std::string shape_text(std::span<const std::int64_t> item) {
  return fmt::format("[items{}{}]", item.empty() ? "" : ", ", fmt::join(item, ", "));
}

bool matches(std::span<const std::int64_t> shape, std::span<const std::int64_t> item) {
  return shape.size() == item.size() + 1 &&
         std::ranges::equal(shape.subspan(1), item, [](std::int64_t given, std::int64_t wanted) {
           return wanted < 0 || given == wanted;
         });
}

void check(const TensorSpec& spec, const Tensor& tensor) {
  if (tensor.type != spec.type || !matches(tensor.shape, spec.shape)) {
    throw base::RunError(fmt::format("input {} is {} [{}], but the model takes {} {}", tensor.name,
                                     to_string(tensor.type), fmt::join(tensor.shape, ", "),
                                     to_string(spec.type), shape_text(spec.shape)));
  }
  if (const auto fault = check_data(tensor.type, tensor.shape, tensor.data); !fault.empty()) {
    throw base::RunError(fmt::format("input {}: {}", tensor.name, fault));
  }
  if (const auto fault = check_ids(spec, tensor); !fault.empty()) {
    throw base::RunError(fmt::format("input {}: {}", tensor.name, fault));
  }
}

void flatten_into(const c10::IValue& value, const std::string& key,
                  std::vector<NamedTensor>& found) {
  if (value.isTensor()) {
    found.push_back({key, value.toTensor()});
  } else if (value.isTuple()) {
    for (const auto& element : value.toTupleRef().elements()) flatten_into(element, key, found);
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) flatten_into(element, key, found);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      flatten_into(entry.value(), entry.key().isString() ? entry.key().toStringRef() : key, found);
    }
  }
}

}  // namespace

Specs input_specs(const StoredModel& model) {
  if (!model.inputs.empty()) return model.inputs;
  TensorSpec spec{"INPUT__0", input_type(model), model.input};
  for (std::int64_t& side : spec.shape) side = side == 0 ? -1 : side;
  return {spec};
}

std::size_t count_items(const Specs& specs, std::span<const std::vector<Tensor>> requests,
                        std::size_t max_items) {
  std::uint64_t items = 0;
  for (const std::vector<Tensor>& inputs : requests) {
    if (inputs.size() != specs.size()) {
      throw base::RunError(fmt::format("the model takes {} input{}, not {}", specs.size(),
                                       specs.size() == 1 ? "" : "s", inputs.size()));
    }
    for (std::size_t i = 0; i < specs.size(); ++i) {
      check(specs[i], inputs[i]);
      if (inputs[i].shape[0] != inputs[0].shape[0]) {
        throw base::RunError("the inputs of a request have different numbers of items");
      }
      // Rows of different sizes cannot be in one tensor.
      if (!std::ranges::equal(std::span(inputs[i].shape).subspan(1),
                              std::span(requests[0][i].shape).subspan(1))) {
        throw base::RunError("the requests of a batch have inputs of different shapes");
      }
    }
    items += static_cast<std::uint64_t>(inputs[0].shape[0]);
    if (inputs[0].shape[0] < 1 || items > max_items) {
      throw base::RunError(fmt::format("a batch has {} items, allowed: 1 to {}", items, max_items));
    }
  }
  if (items == 0) throw base::RunError("a batch without a request");
  return items;
}

Tensors pack(const Specs& specs, std::span<const std::vector<Tensor>> requests, std::size_t rows) {
  Tensors packed;
  for (std::size_t i = 0; i < specs.size(); ++i) {
    std::vector<std::int64_t> shape = requests[0][i].shape;
    shape[0] = static_cast<std::int64_t>(rows);
    packed.push_back(at::empty(shape, at::TensorOptions().dtype(to_torch(specs[i].type))));
    auto* to = static_cast<std::byte*>(packed.back().mutable_data_ptr());
    const auto* end = to + packed.back().nbytes();
    for (const std::vector<Tensor>& inputs : requests) {
      to = std::ranges::copy(inputs[i].data, to).out;
    }
    // What an earlier batch left in this memory must not reach the model.
    std::memset(to, 0, static_cast<std::size_t>(end - to));
  }
  return packed;
}

Tensors zero_batch(const Specs& specs, std::size_t rows, const c10::Device& device) {
  constexpr std::int64_t kAnySide = 64;
  Tensors zeros;
  for (const TensorSpec& spec : specs) {
    std::vector<std::int64_t> shape{static_cast<std::int64_t>(rows)};
    for (const std::int64_t side : spec.shape) shape.push_back(side < 0 ? kAnySide : side);
    zeros.push_back(
        at::zeros(shape, at::TensorOptions().dtype(to_torch(spec.type)).device(device)));
  }
  return zeros;
}

Tensors without_batch(const Tensors& batch) {
  Tensors items;
  for (const at::Tensor& tensor : batch) items.push_back(tensor.squeeze(0));
  return items;
}

std::vector<std::size_t> batch_sizes(std::size_t max_batch) {
  std::vector<std::size_t> sizes;
  for (std::size_t size = 1; size < max_batch; size *= 2) sizes.push_back(size);
  sizes.push_back(max_batch);
  return sizes;
}

std::vector<NamedTensor> flatten(const c10::IValue& output) {
  std::vector<NamedTensor> found;
  flatten_into(output, "", found);
  std::map<std::string, int> uses;
  for (const NamedTensor& entry : found) ++uses[entry.name];
  for (std::size_t i = 0; i < found.size(); ++i) {
    std::string& name = found[i].name;
    if (name.empty() || uses[name] > 1) name = fmt::format("OUTPUT__{}", i);
  }
  return found;
}

DataType type_of(const at::Tensor& tensor) {
  const auto* found =
      std::ranges::find(kTypes, tensor.scalar_type(), [](const auto& pair) { return pair.second; });
  if (found != kTypes.end()) return found->first;
  throw base::RunError(fmt::format("the model returns {}, which the protocol lacks",
                                   c10::toString(tensor.scalar_type())));
}

at::ScalarType to_torch(DataType type) {
  const auto* found = std::ranges::find(kTypes, type, [](const auto& pair) { return pair.first; });
  if (found != kTypes.end()) return found->second;
  throw base::RunError(fmt::format("no model takes {}", to_string(type)));
}

}  // namespace sluice::engine
