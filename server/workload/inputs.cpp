#include "server/workload/inputs.hpp"

#include <fmt/format.h>

#include <cstring>
#include <random>

#include "base/arrival_gaps.hpp"
#include "base/error.hpp"

namespace sluice::server::workload {
namespace {

/// gRPC cannot send a message of more than 2 GiB.
constexpr std::uint64_t kMostBytes = std::uint64_t{2047} << 20;
/// Every embedding table has that many rows.
constexpr std::uint64_t kLargestIndex = 99;

std::vector<std::int64_t> sized(const std::string& model, const InputSpec& spec,
                                const InputOptions& options) {
  std::vector<std::int64_t> shape = spec.shape;
  const bool batched = !shape.empty() && shape.front() == -1;
  if (!batched && options.batch > 1) {
    throw base::RunError(fmt::format("--batch {}: input '{}' of model '{}' has no batch dimension",
                                     options.batch, spec.name, model));
  }
  for (std::int64_t& size : shape) size = size == -1 ? options.dim : size;
  if (batched) shape.front() = options.batch;
  return shape;
}

template <class Value>
void put(std::string& data, Value value) {
  char bytes[sizeof(Value)];
  std::memcpy(bytes, &value, sizeof(Value));
  data.append(bytes, sizeof(Value));
}

/// Of a BYTES element: the length of its text, and the text.
void put_text(std::string& data, std::uint64_t value) {
  const std::string text = std::to_string(value);
  put(data, static_cast<std::uint32_t>(text.size()));
  data += text;
}

void put_random(std::string& data, engine::DataType type, std::mt19937_64& random) {
  using engine::DataType;
  const std::uint64_t index = random() % (kLargestIndex + 1);
  switch (type) {
    case DataType::kFp32:
      return put(data, static_cast<float>(base::uniform(random)));
    case DataType::kFp64:
      return put(data, base::uniform(random));
    case DataType::kFp16:  // 0.5 to 1: this exponent, any fraction.
      return put(data, static_cast<std::uint16_t>(0x3800U | (random() & 0x3ffU)));
    case DataType::kBf16:
      return put(data, static_cast<std::uint16_t>(0x3f00U | (random() & 0x7fU)));
    case DataType::kBytes:
      return put_text(data, index);
    case DataType::kBool:
      return put(data, static_cast<std::uint8_t>(index & 1U));
    default:
      // Little endian: the first byte is the value.
      data += static_cast<char>(index);
      data.append(engine::size_of(type) - 1, '\0');
  }
}

std::string values(engine::DataType type, std::uint64_t count, const InputOptions& options,
                   std::mt19937_64& random) {
  std::string data;
  if (options.random) {
    for (std::uint64_t i = 0; i < count; ++i) put_random(data, type, random);
  } else if (type == engine::DataType::kBytes) {
    for (std::uint64_t i = 0; i < count; ++i) put_text(data, 0);
  } else {
    data.assign(count * engine::size_of(type), '\0');
  }
  return data;
}

}  // namespace

std::vector<Input> make_inputs(const std::string& model, const std::vector<InputSpec>& specs,
                               const InputOptions& options) {
  std::mt19937_64 random(options.seed);
  std::vector<Input> inputs;
  for (const InputSpec& spec : specs) {
    Input input{spec.name, spec.type, sized(model, spec, options), ""};
    const auto count = engine::element_count(input.shape);
    const std::uint64_t width = std::max<std::size_t>(engine::size_of(spec.type), 1);
    if (!count || *count > kMostBytes / width) {
      throw base::RunError(
          fmt::format("input '{}' of model '{}' exceeds 2047 MB", spec.name, model));
    }
    input.data = values(spec.type, *count, options, random);
    inputs.push_back(std::move(input));
  }
  return inputs;
}

}  // namespace sluice::server::workload
